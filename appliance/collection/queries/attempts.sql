-- Every verified bundle that counts, those of failed attempts too, node by node.
SELECT * FROM attempts ORDER BY node, number;
