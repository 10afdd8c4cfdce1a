-- Times in which the clock of a node was off, as enough of its heartbeats show.
-- Inputs   :cluster.
-- Output   node, from_at, to_at (by the server's clock), offset_s (ahead, seconds), is_current (its latest heartbeat belongs to it),
--          is_settled (began so long ago that all other agents have sent a heartbeat since), n_agents (nodes of the cluster with an agent);
--          by node and time.
SELECT c.node, c.from_at, c.to_at, c.offset_s, c.from_at <= now() - interval '15 seconds' AS is_settled,
       c.to_at >= h.received_at IS TRUE AS is_current,
       (SELECT count(*) FROM probing.agent_heartbeat a WHERE a.cluster = :cluster) AS n_agents
FROM probing.node_clock c
LEFT JOIN probing.agent_heartbeat h ON h.cluster = c.cluster AND h.node = c.node
WHERE c.cluster = :cluster AND c.is_sure
ORDER BY c.node, c.from_at
