-- Every bundle that does not count, and why.
SELECT * FROM refusals ORDER BY reason, node, source;
