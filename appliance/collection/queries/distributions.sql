-- Every metric by which nodes are compared, with its median, its spread and its fences.
SELECT * FROM distributions ORDER BY name;
