-- Events, latest first.
-- Inputs   cluster; filters, null where not asked for; since, until; after_at, after_id: the last row of the page before; n.
SELECT
    e.event_id, e.cluster, e.node, e.at, e.kind, e.severity, e.source, e.message, e.code, e.device, e.pci_bus_id, e.gpu_uuid,
    e.job_id, e.count, e.last_at
FROM probing.health_event e
WHERE e.cluster = %(cluster)s AND e.at >= %(since)s AND e.at < %(until)s
  AND (%(node)s::text IS NULL OR e.node = %(node)s)
  AND (%(kind)s::text IS NULL OR e.kind = %(kind)s)
  AND (%(code)s::text IS NULL OR e.code = %(code)s)
  AND (%(severity)s::text IS NULL OR e.severity = %(severity)s)
  AND (%(job_id)s::bigint IS NULL OR e.job_id = %(job_id)s)
  AND (%(gpu_uuid)s::text IS NULL OR e.gpu_uuid = %(gpu_uuid)s)
  AND (%(after_at)s::timestamptz IS NULL OR (e.at, e.event_id) < (%(after_at)s, %(after_id)s::uuid))
ORDER BY e.at DESC, e.event_id DESC
LIMIT %(n)s
