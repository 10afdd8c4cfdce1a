-- Last time at which each node was watched (its agent's last heartbeat, else the end of its own log), and the gaps before it. A heartbeat
-- counts by the right clock (deliver.sql): one that ran ahead did not watch what came later. A node
-- without an agent is watched while a file of its kernel log covers it; files that follow each other within a day are one log.
-- Inputs   :cluster; :nodes; :since, :until  gaps outside of it are left out.
-- Output   node, beats (true = an agent's heartbeat is known), last_at (null = never watched), gaps_from (null = no earlier agent), gaps_to: parallel arrays, oldest first.
SELECT n.node, b.at IS NOT NULL AS beats, coalesce(logs.gaps_from, gaps.gaps_from) AS gaps_from, coalesce(logs.gaps_to, gaps.gaps_to) AS gaps_to,
       coalesce(
           probing.right_time(:cluster, n.node, b.at, b.at, b.received_at),
           logs.last_at,
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
LEFT JOIN LATERAL (
    SELECT array_agg(f.gap_from ORDER BY f.log) AS gaps_from, array_agg(f.gap_to ORDER BY f.log) AS gaps_to, max(upper(f.log)) - interval '1 day' AS last_at
    FROM (
        SELECT l.log, lag(upper(l.log)) OVER (ORDER BY l.log) - interval '1 day' AS gap_from, lower(l.log) AS gap_to
        FROM (
            SELECT unnest(range_agg(tstzrange(e.at, coalesce(e.last_at, e.at) + interval '1 day', '[]'))) AS log
            FROM probing.health_event e
            WHERE b.node IS NULL AND e.node = n.node AND e.cluster = :cluster AND e.source = 'import'
            HAVING bool_or(e.kind = 'kernel_log')
        ) AS l
    ) AS f
) AS logs ON true
