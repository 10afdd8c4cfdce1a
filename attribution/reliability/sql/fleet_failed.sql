-- Attempts with GPUs that infrastructure ended, for the rates.
-- Inputs   view base.
-- Output   cluster, end_us, cause, component, fault_node, nodes, incident_id, gpus, gpu_s, size.
SELECT cluster, end_us, coalesce(cause, 'unjudged') AS cause, coalesce(component, 'node') AS component, fault_node, nodes,
       incident_id, gpus, gpu_s, size
FROM base
WHERE infra AND ended AND gpus > 0
ORDER BY end_us, cluster, job_id, attempt
