-- How many nodes are accepted, rejected or open.
SELECT state, count(*) AS num_nodes
FROM nodes GROUP BY state ORDER BY state;
