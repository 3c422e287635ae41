-- The devices of the run that stands for each node.
SELECT devices.* FROM devices JOIN nodes USING (node, run_id) ORDER BY node, device;
