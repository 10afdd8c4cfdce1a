-- Ended attempts that get a verdict, with the columns that a verdict without evidence needs.
-- Inputs   $1 true = only those without a current verdict; $2, $3 bounds of their end (timestamptz, half open); $4 most rows;
--          $5 the states that get one.
-- Output   cluster, job_id, submit_at, attempt, start_at, end_at, suspended_s, state, exit_code, exit_signal, reason, nodes, n_gpus,
--          "user", time_limit_s, cancelled_by, ref (the job as its owner names it), gpus_known (whether its record names its GPUs), of_het (a component of a heterogeneous job), fingerprint (as the store's
--          `fingerprints`: of the columns whose change has it judged again); by end.
SELECT a.cluster, a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.suspended_s, a.state, a.exit_code, a.exit_signal,
       a.reason, a.nodes, a.n_gpus, a."user", a.time_limit_s, a.cancelled_by, probing.job_ref(a) AS ref,
       a.gpus IS NOT NULL AS gpus_known, a.het_job_id IS NOT NULL AS of_het,
       hash_record_extended(ROW(a.state, a.start_at, a.end_at, a.exit_code, a.exit_signal, a.gpus, a.nodes, a.failed_node, a.cancelled_by), 0)
           AS fingerprint
FROM probing.job_attempt a
WHERE a.end_at >= $2 AND a.end_at < $3
  AND a.state <> 'COMPLETED'
  AND a.state = ANY($5::text[])
  AND a.start_at IS NOT NULL
  AND (NOT $1 OR a.judged_at IS NULL)
ORDER BY a.end_at, a.job_id, a.submit_at
LIMIT $4
