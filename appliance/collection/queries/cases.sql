-- The cases of the run that stands for each node.
SELECT cases.* FROM cases JOIN nodes USING (node, run_id) ORDER BY node, "case";
