-- GPUs that a node's jobs held or its events named: the serial it has now, and where else that serial was seen.
-- Inputs   node.
SELECT e.gpu_uuid, max(e.device) AS device, max(e.at) AS last_at, count(*) AS n_events,
       array_agg(DISTINCT e.kind || coalesce(' ' || e.code, '')) AS kinds
FROM probing.health_event e
WHERE e.node = %(node)s AND e.at >= now() - interval '90 days' AND e.gpu_uuid IS NOT NULL
GROUP BY e.gpu_uuid
ORDER BY max(e.at) DESC
LIMIT 32
