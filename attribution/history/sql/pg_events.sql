-- Node events of a span, for the fleet figures and for attribution in bulk.
-- Inputs   $1, $2 bounds (timestamptz, $1 <= at < $2).
-- Output   event_id (text), cluster, node, at_us (a timestamp, which Arrow casts to microseconds since 1970 UTC), kind, code, severity, source, device, gpu_uuid,
--          pci_bus_id, job_id, recovered.
SELECT e.event_id::text AS event_id, e.cluster, e.node, e.at AS at_us,
       e.kind, e.code, e.severity, e.source, e.device, e.gpu_uuid, e.pci_bus_id, e.job_id,
       coalesce(e.detail -> 'recovered' = 'true'::jsonb, false) AS recovered
FROM probing.health_event e
WHERE e.at >= $1 AND e.at < $2
