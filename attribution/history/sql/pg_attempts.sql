-- Attempts that ran in a span, for the fleet figures, with their current verdict.
-- Inputs   $1, $2 bounds of the span (timestamptz): attempts that started before $2 and had not ended before $1.
-- Output   one row per attempt; *_us are timestamps, which Arrow casts to microseconds since 1970 UTC (in SQL that takes longer than the rest),
--          null while unknown; ran_until_us: when an attempt without an end must have ended; verdict columns null without one. Evidence is read only for attempts that infrastructure ended: the figures
--          need no other, and all ids took a third of the whole time.
SELECT a.cluster, a.job_id, a.attempt, a.submit_at AS submit_us, a.eligible_at AS eligible_us, a.start_at AS start_us, a.end_at AS end_us,
       a.suspended_s, a.state, a.nodes, cardinality(a.nodes)::int AS n_nodes, a.n_gpus, a."user", a.account, a.partition,
       a.run_key, a.priority, v.cause, v.domain, v.component, v.node AS fault_node, v.confidence,
       CASE WHEN v.domain IN ('hardware', 'system_software') OR a.state IN ('NODE_FAIL', 'BOOT_FAIL') THEN v.evidence::text[] END AS evidence,
       v.incident_id::text AS incident_id, v.stalled_at AS stalled_us,
       CASE WHEN a.end_at IS NULL THEN probing.ran_until(a) END AS ran_until_us
FROM probing.job_attempt a
LEFT JOIN probing.verdict v
  ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
WHERE a.start_at < $2
  AND (a.end_at IS NULL OR a.end_at >= $1)
