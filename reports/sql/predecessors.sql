-- The jobs that a job waited for, as looks at the queue found them, and how each ended; those that did not complete come first.
-- Inputs   cluster, job_id, "user", account: the job that waited; at: when it ended.
-- Output   on_job_id (a raw id, or an array's number), ref, state, has_ended, cause, confidence, summary; of an array or a heterogeneous job of one
--          task or component, one that did not complete if there is any. ref null: it never started either. state null: nothing is on
--          record of it, or it is of another user or account, which the owner may not read.
SELECT d.on_job_id, l.ref, coalesce(l.state, n.state) AS state, l.end_at IS NOT NULL AS has_ended, v.cause, v.confidence, v.summary
FROM probing.job_dependency d
LEFT JOIN LATERAL (
    SELECT o.*
    FROM (
        SELECT DISTINCT ON (a.job_id) a.cluster, a.job_id, a.submit_at, a.state, a.end_at, probing.job_ref(a) AS ref
        FROM probing.job_attempt a
        WHERE a.cluster = d.cluster AND (a.job_id = d.on_job_id OR a.array_job_id = d.on_job_id OR a.het_job_id = d.on_job_id)
          AND a."user" = %(user)s AND a.account = %(account)s AND a.submit_at <= %(at)s
        ORDER BY a.job_id, a.submit_at DESC
    ) o
    ORDER BY o.state = 'COMPLETED', o.end_at, o.job_id
    LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    SELECT e.detail ->> 'state' AS state
    FROM probing.health_event e
    WHERE l.job_id IS NULL AND e.cluster = d.cluster AND e.job_id = d.on_job_id AND e.kind = 'never_started'
      AND e.node = '' -- a node's agent can write no event of no node
      AND e.at <= %(at)s AND e.detail ->> 'user' = %(user)s AND e.detail ->> 'account' = %(account)s
    ORDER BY e.at DESC
    LIMIT 1
) n ON true
LEFT JOIN probing.verdict v
  ON v.cluster = l.cluster AND v.job_id = l.job_id AND v.submit_at = l.submit_at AND v.superseded_at IS NULL
WHERE d.cluster = %(cluster)s AND d.job_id = %(job_id)s AND d.on_job_id > 0 AND d.at <= %(at)s
ORDER BY coalesce(l.state = 'COMPLETED', false), d.on_job_id
