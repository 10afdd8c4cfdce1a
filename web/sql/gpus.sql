-- GPUs that jobs held on a node, or that its events named, in 90 days: UUID, the serial number an event told, and the last sign of each.
-- Inputs   cluster, node.
SELECT p.gpu_uuid, max(p.serial) AS serial, max(p.device) AS device, max(p.at) AS last_at, count(p.kind) AS n_events,
       array_remove(array_agg(DISTINCT p.kind), NULL) AS kinds
FROM (
    SELECT e.gpu_uuid, coalesce(e.detail ->> 'serial', substring(e.message FROM 'serial ([0-9A-Za-z]{6,32})')) AS serial, e.device, e.at,
           e.kind || coalesce(' ' || e.code, '') AS kind
    FROM probing.health_event e
    WHERE e.cluster = %(cluster)s AND e.node = %(node)s AND e.at >= now() - interval '90 days' AND e.gpu_uuid IS NOT NULL
    UNION ALL
    SELECT u.gpu_uuid, NULL, NULL, a.at, NULL
    FROM probing.job_allocation a
    CROSS JOIN LATERAL unnest(a.gpu_uuids) AS u(gpu_uuid)
    WHERE a.cluster = %(cluster)s AND a.node = %(node)s AND a.at >= now() - interval '90 days'
) p
GROUP BY p.gpu_uuid
ORDER BY count(p.kind) DESC, max(p.at) DESC
LIMIT 32
