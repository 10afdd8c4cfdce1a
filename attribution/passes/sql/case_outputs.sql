-- What the agent of an attempt's first node, where its batch script runs, reported of its output.
-- Inputs   :cluster; :job_ids, :submits, :by_exit  parallel arrays: the attempts, and whether only the exit explains the end.
-- Output   job_id, submit_at, is_read (whether lines of its output were reported; false = no report yet, or one that names files by a guess and
--          comes again once accounting has the array's numbers; null = reported that it cannot be read), logs (that report, of a FAILED
--          attempt that only its exit explains; else null). An attempt without a Prolog of that node on record has no row, unless the
--          node's agent was not heard since before its end (the database was away), or brings what waited since then: its report may be on
--          its way (is_read false). A later component of a heterogeneous job has no row: it has no file of its own.
-- The Prolog's row as assign_rows.in_life finds it. OFFSET 0: each attempt is looked up by itself.
SELECT a.job_id, a.submit_at,
       CASE WHEN l.detail IS NULL OR NOT l.detail ? 'logs'
                 OR (l.detail -> 'ids_known' IS DISTINCT FROM 'true' AND jsonb_path_exists(l.detail, '$.logs[*].unnamed ? (@ == true)'))
            THEN false
            WHEN jsonb_path_exists(l.detail, '$.logs[*].tail') THEN true
       END AS is_read,
       CASE WHEN g.by_exit AND a.state = 'FAILED' THEN l.detail -> 'logs' END AS logs
FROM unnest(CAST(:job_ids AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:by_exit AS boolean[])) AS g(job_id, submit_at, by_exit)
JOIN probing.job_attempt a ON a.cluster = :cluster AND a.job_id = g.job_id AND a.submit_at = g.submit_at
LEFT JOIN LATERAL (
    SELECT p.detail
    FROM probing.job_allocation p
    WHERE p.cluster = a.cluster AND p.job_id = a.job_id AND p.node = a.nodes[1]
      AND probing.is_prolog_of(p.at, a.start_at, a.end_at)
    ORDER BY p.at DESC
    LIMIT 1
    OFFSET 0
) AS l ON true
WHERE coalesce(a.het_offset, 0) = 0
  AND (l.detail IS NOT NULL
       OR EXISTS (SELECT FROM probing.agent_heartbeat b
                  WHERE b.cluster = a.cluster AND b.node = a.nodes[1]
                    AND probing.right_time(b.cluster, b.node, b.at, b.at, b.received_at) - b.lag_s * interval '1 second' < a.end_at
                    AND (b.received_at < now() - 3 * b.beat_s * interval '1 second' OR b.lag_s > 3 * b.beat_s)))
