-- Repairs of nodes, latest opened first.
-- Inputs   cluster; filters, null where not asked for; after_at, after_id: the last row of the page before; n.
SELECT i.*
FROM probing.repair_incident i
WHERE i.cluster = %(cluster)s
  AND (%(node)s::text IS NULL OR i.node = %(node)s)
  AND (%(state)s::text IS NULL OR i.state = %(state)s)
  AND (%(open)s::boolean IS NULL OR (i.closed_at IS NULL) = %(open)s)
  AND (%(since)s::timestamptz IS NULL OR i.opened_at >= %(since)s)
  AND (%(after_at)s::timestamptz IS NULL OR (i.opened_at, i.incident_id) < (%(after_at)s, %(after_id)s::uuid))
ORDER BY i.opened_at DESC, i.incident_id DESC
LIMIT %(n)s
