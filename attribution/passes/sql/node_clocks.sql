-- Times in which the clock of a node was off, as its heartbeats show.
-- Inputs   :cluster.
-- Output   node, from_at, to_at (by the server's clock), offset_s (ahead, seconds), is_sure (enough heartbeats show it), is_current (its
--          latest heartbeat belongs to it), is_settled (began so long ago that all other agents have sent a heartbeat since);
--          by node and time.
SELECT c.node, c.from_at, c.to_at, c.offset_s, c.is_sure, c.from_at <= now() - interval '15 seconds' AS is_settled,
       c.to_at >= h.received_at IS TRUE AS is_current
FROM probing.node_clock c
LEFT JOIN probing.agent_heartbeat h ON h.cluster = c.cluster AND h.node = c.node
WHERE c.cluster = :cluster
ORDER BY c.node, c.from_at
