-- Every attempt of the span as the figures see it.
-- Inputs   table attempt (pg_attempts.sql's columns); $since_us, $until_us (clip). Partition and users are filtered on top.
-- Output   view base: job_id, attempt, submit_us, start_us, end_us (null while running), last_us (the end; of an attempt without one $until_us, or when it must have ended: slurmdbd never heard of it), state, n_nodes, n_gpus, gpus (0 when
--          unknown), user, partition, run_key, size (GPUs rounded up to a power of two), active_frac (share of its life that it was not
--          suspended, 0..1), run_s (seconds in the span, suspensions taken off), whole_run_s (the same of its whole life), gpu_s, node_s, ended (in
--          the span), infra (ended by hardware or system software, the latter at least likely), cause, component, domain, fault_node, confidence,
--          nodes, evidence, incident_id, hung_s (without progress until its end).
-- Accounting has the sum of an attempt's suspensions and not their times, so every stretch of its life loses the same share: the figures of
-- adjoining spans add up to the figure of the whole.
SELECT b.*,
       b.run_s * b.gpus AS gpu_s,
       b.run_s * b.n_nodes AS node_s,
       b.state IN ('NODE_FAIL', 'BOOT_FAIL') AND coalesce(b.cause, '') <> 'node_set_down'
         OR (b.state IN ('FAILED', 'REQUEUED', 'TIMEOUT', 'CANCELLED', 'DEADLINE', 'OUT_OF_MEMORY')
             AND coalesce(b.domain, '') IN ('hardware', 'system_software')
             AND NOT (b.domain = 'system_software' AND coalesce(b.confidence, '') = 'possible')
             AND coalesce(b.cause, '') <> 'node_refused') AS infra
FROM (
    SELECT a.cluster, a.job_id, a.attempt, a.submit_us, a.start_us, a.end_us, a.last_us, a.state, a.nodes,
           CAST(a.n_nodes AS BIGINT) AS n_nodes, a.n_gpus, coalesce(a.n_gpus, 0) AS gpus, a."user", a.partition, a.run_key, a.active_frac,
           CASE WHEN coalesce(a.n_gpus, 0) <= 1 THEN coalesce(a.n_gpus, 0)
                ELSE CAST(power(2, ceil(log2(a.n_gpus) - 1e-9)) AS BIGINT) END AS size,
           greatest(0.0, (least(a.last_us, $until_us) - greatest(a.start_us, $since_us)) / 1e6) * a.active_frac AS run_s,
           greatest(0.0, (a.last_us - a.start_us) / 1e6) * a.active_frac AS whole_run_s,
           a.end_us IS NOT NULL AND a.end_us >= $since_us AND a.end_us < $until_us AS ended,
           a.cause, a.component, a.domain, a.fault_node, a.confidence, a.evidence, a.incident_id,
           CASE WHEN a.stalled_us < a.end_us THEN (a.end_us - greatest(a.stalled_us, a.start_us)) / 1e6 ELSE 0.0 END AS hung_s
    FROM (
        SELECT *, CASE WHEN coalesce(suspended_s, 0.0) <= 0.0 THEN 1.0
                       ELSE 1.0 - least(1.0, suspended_s * 1e6 / greatest(last_us - start_us, 1)) END AS active_frac
        FROM (SELECT *, coalesce(end_us, least(ran_until_us, $until_us)) AS last_us FROM attempt)
        WHERE start_us IS NOT NULL
          AND start_us < $until_us
          AND last_us >= $since_us
    ) a
) b
