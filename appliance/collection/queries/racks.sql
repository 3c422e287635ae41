-- Of each rack, how many nodes are accepted, rejected or open, how many lie beyond a fence, and the
-- median difference of its devices' step times from the fleet's.
WITH beyond AS (
    SELECT DISTINCT node FROM deviations WHERE is_beyond
), shift AS (
    SELECT nodes.rack, median(deviations.seconds / middle.value - 1) AS difference
    FROM deviations
    JOIN nodes USING (node)
    JOIN (SELECT name, median(seconds) AS value FROM deviations GROUP BY name) AS middle USING (name)
    GROUP BY nodes.rack
)
SELECT nodes.rack,
    count(*) AS num_nodes,
    count(*) FILTER (WHERE state = 'accepted') AS accepted,
    count(*) FILTER (WHERE state = 'rejected') AS rejected,
    count(*) FILTER (WHERE state = 'open') AS open,
    count(beyond.node) AS num_beyond,
    any_value(shift.difference) AS difference
FROM nodes
LEFT JOIN beyond USING (node)
LEFT JOIN shift ON shift.rack = nodes.rack
GROUP BY nodes.rack ORDER BY nodes.rack;
