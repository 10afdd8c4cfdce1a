-- Agents that were heard again in the boot in which they had fallen silent: the machine did not stop.
-- Inputs   :cluster; :numbers, :nodes, :froms, :tos  parallel arrays, one entry per gap in a node's watch: its last word, and the start of the next agent.
-- Output   n (the gap's number), of those alone.
-- An agent reports each boot once, with the time of the boot. The last boot up to the gap's end must lie before the gap, and be the one that the
-- node's agent is in now, or be followed by another: that of a node just back may not have arrived yet.
SELECT g.n
FROM unnest(CAST(:numbers AS int[]), CAST(:nodes AS text[]), CAST(:froms AS timestamptz[]), CAST(:tos AS timestamptz[])) AS g(n, node, from_at, to_at)
JOIN probing.agent_heartbeat h ON h.cluster = :cluster AND h.node = g.node
CROSS JOIN LATERAL (
    SELECT e.at, e.detail ->> 'boot_id' AS boot_id
    FROM probing.health_event e
    WHERE e.cluster = :cluster AND e.node = g.node AND e.kind = 'node_boot' AND e.source = 'agent' AND e.at <= g.to_at
    ORDER BY e.at DESC
    LIMIT 1
) AS b
WHERE b.at <= g.from_at
  AND (b.boot_id = h.boot_id
       OR EXISTS (SELECT FROM probing.health_event e
                  WHERE e.cluster = :cluster AND e.node = g.node AND e.kind = 'node_boot' AND e.source = 'agent' AND e.at > g.to_at))
