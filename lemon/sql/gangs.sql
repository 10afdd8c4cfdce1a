-- Failures without a named node, once per run: if one run fails repeatedly, the run itself is the common factor.
-- Inputs   table attempt, table unnamed (confidence, many, one: chance that hardware did it, several nodes or one); $since_us, $until_us.
-- Output   nodes, at_us, hardware (0..1).
--          System software that is only possible explains no more than unknown, as in the rates (fleet_base.sql). The caller leaves out nodes whose failures of that time have been dealt with.
SELECT g.nodes, g.at_us, g.hardware
FROM (
    SELECT a.nodes, a.end_us AS at_us, CASE WHEN a.n_nodes > 1 THEN u.many ELSE u.one END AS hardware,
           row_number() OVER (PARTITION BY a."user", a.run_key ORDER BY u.many DESC, a.end_us, a.job_id, a.attempt) AS n
    FROM attempt a
    JOIN unnamed u ON u.sort = CASE WHEN a.domain = 'unknown' THEN 'unexplained'
                                    WHEN a.fault_node IS NOT NULL THEN 'only the job says so'
                                    WHEN a.domain = 'system_software' AND a.confidence = 'possible' THEN 'unexplained'
                                    ELSE a.confidence END
    WHERE a.end_us >= $since_us AND a.end_us < $until_us
      AND a.incident IS NULL
      AND coalesce(a.component, '') <> 'filesystem'
      AND (a.fault_node IS NULL OR NOT a.attested)
      AND a.cause NOT IN ('node_refused', 'node_set_down', 'time_limit', 'user_cancelled', 'preempted', 'requeued_by_user')
      AND (a.domain = 'hardware' AND a.state <> 'COMPLETED'
           OR a.domain = 'system_software' AND a.confidence <> 'possible' AND a.state <> 'COMPLETED'
           OR a.domain IN ('unknown', 'system_software') AND a.state IN ('FAILED', 'NODE_FAIL', 'BOOT_FAIL'))
) g
WHERE g.n = 1
ORDER BY g.at_us
