-- One cluster's events of the kinds that the signals count.
-- Inputs   $1, $2 bounds (timestamptz, $1 <= at < $2); $3 cluster; $4 kinds, comma-separated.
-- Output   node, at_us, kind, code, severity, source, device, gpu_uuid, n (how often it was seen).
SELECT e.node, (extract(epoch FROM e.at) * 1000000)::bigint AS at_us, e.kind, e.code, e.severity, e.source, e.device,
       e.gpu_uuid, e.count AS n
FROM probing.health_event e
WHERE e.at >= $1 AND e.at < $2 AND e.cluster = $3 AND e.kind = ANY (string_to_array($4, ','))
