-- Every device by every metric, with how far it is from what its rack and versions explain.
SELECT deviations.*, nodes.rack FROM deviations JOIN nodes USING (node)
ORDER BY deviations.name, node, device;
