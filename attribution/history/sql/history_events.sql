-- One month of events for the history.
-- Inputs   $1, $2 bounds (timestamptz, $1 <= at < $2).
-- Output   pg_events.sql's columns, and message, measured, detail (JSON text); by time and id.
SELECT e.event_id::text AS event_id, e.cluster, e.node, (extract(epoch FROM e.at) * 1000000)::bigint AS at_us,
       e.kind, e.code, e.severity, e.source, e.device, e.gpu_uuid, e.pci_bus_id, e.job_id,
       coalesce(e.detail -> 'recovered' = 'true'::jsonb, false) AS recovered, e.message, e.measured, e.detail::text AS detail
FROM probing.health_event e
WHERE e.at >= $1 AND e.at < $2
ORDER BY e.at, e.event_id
