-- Node events in the window of each attempt, plus severe ones of the day before (to report them as outside the window).
-- Inputs   :cluster; :keys, :nodes, :froms, :tos  parallel arrays, one entry per attempt and node: the attempt's number in this
--          batch, the node, both ends of its window.
-- Output   key (the attempt's number) and every column of probing.health_event.
-- The time that a kernel log file covers is no event of the node: watched.sql reads it.
-- A coalesced event that began up to a day before the window counts when its last sighting lies inside.
-- Where a severe event came in the day before, what reports its end there is read, too (recoveries, boots).
-- The day before is a query of its own: the index health_event_lasting holds only the few events that it needs.
SELECT w.key, e.*
FROM unnest(CAST(:keys AS int[]), CAST(:nodes AS text[]), CAST(:froms AS timestamptz[]), CAST(:tos AS timestamptz[]))
     AS w(key, node, from_at, to_at)
CROSS JOIN LATERAL (
    SELECT *
    FROM probing.health_event h
    WHERE h.node = w.node
      AND h.at BETWEEN w.from_at AND w.to_at
      AND h.cluster = :cluster
      AND h.source NOT IN ('joblog', 'probe', 'dump')
      AND h.kind <> 'kernel_log'
    UNION ALL
    SELECT *
    FROM probing.health_event h
    WHERE h.node = w.node
      AND h.at >= w.from_at - interval '24 hours' AND h.at < w.from_at
      AND (h.last_at >= w.from_at OR h.severity = 'high')
      AND h.cluster = :cluster
      AND h.source NOT IN ('joblog', 'probe', 'dump')
      AND h.kind <> 'kernel_log'
    UNION ALL
    SELECT *
    FROM probing.health_event r
    WHERE r.node = w.node
      AND r.at >= w.from_at - interval '24 hours' AND r.at < w.from_at
      AND r.cluster = :cluster
      AND (r.detail -> 'recovered' = 'true'::jsonb OR r.kind = 'node_boot')
      AND r.severity <> 'high'
      AND coalesce(r.last_at, r.at) < w.from_at
      AND r.source NOT IN ('joblog', 'probe', 'dump')
      AND EXISTS (SELECT FROM probing.health_event h
                  WHERE h.node = w.node
                    AND h.at >= w.from_at - interval '24 hours' AND h.at < w.from_at
                    AND h.severity = 'high'
                    AND h.cluster = :cluster
                    AND h.source NOT IN ('joblog', 'probe', 'dump'))
) e
ORDER BY w.key, e.at, e.event_id
