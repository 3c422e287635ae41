-- Every version of every component, with the number of nodes that have it, the most common first.
SELECT component, version, count(*) AS num_nodes,
    max(count(*)) OVER (PARTITION BY component) = count(*) AS is_most_common,
    count(*) OVER (PARTITION BY component) AS num_versions
FROM software GROUP BY component, version
ORDER BY component, num_nodes DESC, version;
