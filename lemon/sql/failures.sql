-- Attempts that ended in the window and whose verdict blames one node, with its confidence.
-- Inputs   table attempt (pg_attempts.sql), table confidence (confidence, weight), table cleared (node, at_us: a person has dealt with
--          earlier failures); $since_us, $until_us.
-- Output   node, job_id, ref (as its owner names it), attempt, at_us (end), n_nodes, n_gpus, "user", cause, component, device, confidence, weight (0..1), run_s,
--          summary, counts (false: dealt with). Left out: word that only the job gives; faults of parts that many nodes share (an
--          incident, a file server); system software that is only possible, as in the rates (fleet_base.sql). A node that nobody watched and that Slurm lost counts, though its domain is unknown.
SELECT a.fault_node AS node, a.job_id, a.ref, a.attempt, a.end_us AS at_us, a.n_nodes, a.n_gpus, a."user", a.cause, a.component,
       a.device, a.confidence, c.weight, (a.end_us - a.start_us) / 1e6 AS run_s, a.summary,
       d.at_us IS NULL OR a.end_us >= d.at_us AS counts
FROM attempt a
JOIN confidence c ON c.confidence = a.confidence
LEFT JOIN cleared d ON d.node = a.fault_node
WHERE a.end_us >= $since_us AND a.end_us < $until_us
  AND a.fault_node IS NOT NULL AND a.attested AND a.incident IS NULL
  AND (a.domain = 'hardware' OR a.cause IN ('node_lost', 'node_reboot')
       OR a.domain = 'system_software' AND (a.confidence <> 'possible' OR a.state IN ('NODE_FAIL', 'BOOT_FAIL')))
  AND coalesce(a.component, '') <> 'filesystem'
  AND coalesce(a.cause, '') <> 'node_refused'
  AND a.state IN ('NODE_FAIL', 'BOOT_FAIL', 'FAILED', 'REQUEUED', 'TIMEOUT', 'CANCELLED', 'DEADLINE', 'OUT_OF_MEMORY')
