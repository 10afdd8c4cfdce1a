-- One cluster's events of the kinds that the signals count, and the service's findings about ranks on a node.
-- Inputs   $1, $2 bounds (timestamptz, $1 <= at < $2); $3 cluster; $4 kinds, comma-separated.
-- Output   node, at_us, kind (rank_finding for the latter: job-side evidence), code, severity, source, device, gpu_uuid, n (number of
--          sightings).
SELECT e.node, (extract(epoch FROM e.at) * 1000000)::bigint AS at_us, e.kind, e.code, e.severity, e.source, e.device,
       e.gpu_uuid, e.count AS n
FROM probing.health_event e
WHERE e.at >= $1 AND e.at < $2 AND e.cluster = $3 AND e.kind = ANY (string_to_array($4, ','))
  AND e.detail -> 'recovered' IS DISTINCT FROM 'true'::jsonb -- the end of a fault is not another one
UNION ALL
SELECT f.node, (extract(epoch FROM g.made_at) * 1000000)::bigint, 'rank_finding', g.kind, 'info', 'probe', NULL, NULL, 1
FROM probing.gang_verdict g, unnest(g.nodes) AS f(node)
WHERE g.made_at >= $1 AND g.made_at < $2 AND g.cluster = $3
