-- Times in which the clock of a node was off, as enough of its heartbeats show.
-- Inputs   :cluster.
-- Output   node, from_at, to_at (by the server's clock), offset_s (ahead, seconds), n_agents (nodes of the cluster with an agent); by node and time.
SELECT c.node, c.from_at, c.to_at, c.offset_s,
       (SELECT count(*) FROM probing.agent_heartbeat h WHERE h.cluster = :cluster) AS n_agents
FROM probing.node_clock c
WHERE c.cluster = :cluster AND c.is_sure
ORDER BY c.node, c.from_at
