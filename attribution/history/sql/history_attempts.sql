-- One month of ended attempts for the history, with their current verdict.
-- Inputs   $1, $2 bounds of end_at (timestamptz, $1 <= end_at < $2).
-- Output   pg_attempts.sql's columns, and exit_code, exit_signal, reason, failed_node, gpus (JSON text), work_dir, stdout_path; by end.
SELECT a.cluster, a.job_id, a.attempt,
       (extract(epoch FROM a.submit_at) * 1000000)::bigint AS submit_us,
       (extract(epoch FROM a.eligible_at) * 1000000)::bigint AS eligible_us,
       (extract(epoch FROM a.start_at) * 1000000)::bigint AS start_us,
       (extract(epoch FROM a.end_at) * 1000000)::bigint AS end_us,
       a.suspended_s, a.state, a.nodes, cardinality(a.nodes)::int AS n_nodes, a.n_gpus, a."user", a.account, a.partition,
       a.run_key, a.priority, v.cause, v.domain, v.component, v.node AS fault_node, v.confidence, v.evidence::text[] AS evidence,
       v.incident_id::text AS incident_id, (extract(epoch FROM v.stalled_at) * 1000000)::bigint AS stalled_us,
       a.exit_code::int AS exit_code, a.exit_signal::int AS exit_signal, a.reason, a.failed_node, a.gpus::text AS gpus,
       a.work_dir, a.stdout_path
FROM probing.job_attempt a
LEFT JOIN probing.verdict v
  ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
WHERE a.start_at IS NOT NULL AND a.end_at >= $1 AND a.end_at < $2
ORDER BY a.end_at, a.job_id, a.submit_at
