-- One cluster's attempts that ran in a span, with their current verdict on a node.
-- Inputs   $1, $2 bounds (timestamptz); $3 cluster; $4 job-side sources, comma-separated.
-- Output   one row per attempt; *_us are microseconds since 1970 UTC, null while unknown; verdict columns null without one.
--          end_us: of an attempt whose end accounting never heard, when it must have ended; it used its nodes no longer.
--          incident: the wide incident, of a part that many nodes share; null for a fault of one node.
--          attested: the word against fault_node does not come from the job alone: Slurm says it, a person does, or an event
--          of that node's own sources is among the evidence.
--          ref: the job as its owner names it.
SELECT a.job_id, a.attempt,
       (extract(epoch FROM a.start_at) * 1000000)::bigint AS start_us,
       (extract(epoch FROM coalesce(a.end_at, probing.ran_until(a))) * 1000000)::bigint AS end_us,
       a.state, a.nodes, cardinality(a.nodes)::bigint AS n_nodes, a.n_gpus, a."user", a.run_key,
       v.cause, v.domain, v.component, v.node AS fault_node, v.device, v.confidence, v.summary,
       CASE WHEN v.incident_id <> ALL (v.evidence) THEN v.incident_id::text END AS incident,
       CASE WHEN v.node IS NULL THEN false
            WHEN v.author <> 'rules' THEN true
            WHEN a.state IN ('NODE_FAIL', 'BOOT_FAIL') AND (a.failed_node = v.node OR cardinality(a.nodes) = 1) THEN true
            ELSE EXISTS (
                SELECT 1
                FROM unnest(v.evidence) AS i(id)
                JOIN probing.event_key k ON k.event_id = i.id
                JOIN probing.health_event e ON e.cluster = v.cluster AND e.node = v.node AND e.at = k.at AND e.event_id = k.event_id
                WHERE NOT e.source = ANY (string_to_array($4, ',')))
       END AS attested,
       probing.job_ref(a) AS ref
FROM probing.job_attempt a
LEFT JOIN probing.verdict v
  ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
WHERE a.cluster = $3
  AND a.start_at < $2
  AND (a.end_at IS NULL OR a.end_at >= $1)
