-- Devices beyond a fence, the farthest first.
SELECT deviations.node, nodes.rack, nodes.state, device, name, seconds, effect, adjusted_p
FROM deviations JOIN nodes USING (node)
WHERE is_beyond ORDER BY abs(effect) DESC, deviations.node, device, name;
