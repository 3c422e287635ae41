-- Every node with its state, its attempts, and its worst difference by any metric.
SELECT nodes.node, nodes.rack, nodes.state, nodes.reason, nodes.num_attempts, nodes.num_lost,
    nodes.decided_by, nodes.run_id, coalesce(worst.num_beyond, 0) AS num_beyond, worst.effect
FROM nodes
LEFT JOIN (
    SELECT node, count(*) FILTER (WHERE is_beyond) AS num_beyond, arg_max(effect, abs(effect)) AS effect
    FROM deviations GROUP BY node
) AS worst USING (node)
ORDER BY nodes.node;
