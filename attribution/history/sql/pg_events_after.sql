-- Events of a span that the history does not hold: those after its months, and those that arrived late.
-- Inputs   $1, $2 bounds of the span; $3 end of the exported months; $4 when they were exported (all timestamptz).
-- Output   as pg_events.sql.
SELECT e.event_id::text AS event_id, e.cluster, e.node, (extract(epoch FROM e.at) * 1000000)::bigint AS at_us,
       e.kind, e.code, e.severity, e.source, e.device, e.gpu_uuid, e.pci_bus_id, e.job_id,
       coalesce(e.detail -> 'recovered' = 'true'::jsonb, false) AS recovered
FROM probing.health_event e
WHERE e.at >= $1 AND e.at < $2
  AND (e.at >= $3
       OR EXISTS (SELECT 1 FROM probing.event_key k WHERE k.event_id = e.event_id AND k.received_at >= $4))
