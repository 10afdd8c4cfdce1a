-- Until when each node was watched: its agent's last heartbeat, else the last event that came from its own log; and since when.
-- Inputs   :cluster; :nodes.
-- Output   node, last_at (null = never watched), since_at (null = not known).
SELECT n.node, b.watched_since AS since_at,
       coalesce(
           b.at,
           (SELECT e.at FROM probing.health_event e
            WHERE e.node = n.node AND e.cluster = :cluster AND e.source IN ('import', 'kernel')
            ORDER BY e.at DESC LIMIT 1)
       ) AS last_at
FROM unnest(CAST(:nodes AS text[])) AS n(node)
LEFT JOIN probing.agent_heartbeat b ON b.cluster = :cluster AND b.node = n.node
