-- Until when each node was watched: its agent's last heartbeat, else the last event that came from its own log; and when before
-- that it was not.
-- Inputs   :cluster; :nodes; :since, :until  spans without an agent that lie outside are left out.
-- Output   node, beats (true = an agent's heartbeat is known), last_at (null = never watched), gaps_from (null = since ever), gaps_to: parallel arrays, oldest first.
SELECT n.node, b.at IS NOT NULL AS beats, gaps.gaps_from, gaps.gaps_to,
       coalesce(
           b.at,
           (SELECT e.at FROM probing.health_event e
            WHERE e.node = n.node AND e.cluster = :cluster AND e.source IN ('import', 'kernel')
            ORDER BY e.at DESC LIMIT 1)
       ) AS last_at
FROM unnest(CAST(:nodes AS text[])) AS n(node)
LEFT JOIN probing.agent_heartbeat b ON b.cluster = :cluster AND b.node = n.node
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(lower(g) ORDER BY g), '{}') AS gaps_from, coalesce(array_agg(upper(g) ORDER BY g), '{}') AS gaps_to
    FROM unnest(b.unwatched) AS g
    WHERE g && tstzrange(CAST(:since AS timestamptz), CAST(:until AS timestamptz), '[]')
) AS gaps
