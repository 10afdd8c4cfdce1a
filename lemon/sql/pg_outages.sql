-- Stretches in which a node was taken out of scheduling, by our own audit.
-- Inputs   $1, $2 bounds (timestamptz); $3 cluster.
-- Output   node, start_us, end_us (null = still out), reason.
SELECT d.node, (extract(epoch FROM d.at) * 1000000)::bigint AS start_us,
       (extract(epoch FROM d.ended_at) * 1000000)::bigint AS end_us, d.reason
FROM probing.drain d
WHERE d.cluster = $3 AND d.at >= $1 AND d.at < $2 AND d.action = 'drain' AND d.state IN ('done', 'resumed')
