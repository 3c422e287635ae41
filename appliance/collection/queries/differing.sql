-- Nodes with another version of a component than the most common, of equally common ones the first.
WITH counted AS (
    SELECT component, version, count(*) AS num_nodes FROM software GROUP BY component, version
), common AS (
    SELECT component, version FROM counted
    QUALIFY row_number() OVER (PARTITION BY component ORDER BY num_nodes DESC, version) = 1
)
SELECT software.node, nodes.rack, software.component, software.version, common.version AS most_have
FROM software JOIN common USING (component) JOIN nodes USING (node)
WHERE software.version <> common.version
ORDER BY software.component, software.version, software.node;
