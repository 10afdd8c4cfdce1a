-- Decisions about nodes, latest first.
-- Inputs   cluster; filters, null where not asked for; after_at, after_id: the last row of the page before; n.
SELECT
    d.drain_id, d.cluster, d.node, d.at, d.action, d.state, d.reason, d.owner, d.open, d.why_state, d.severity, d.job_id,
    d.ended_at, d.duration_s
FROM ops.drains d
WHERE d.cluster = %(cluster)s
  AND (%(node)s::text IS NULL OR d.node = %(node)s)
  AND (%(action)s::text IS NULL OR d.action = %(action)s)
  AND (%(open)s::boolean IS NULL OR d.open = %(open)s)
  AND (%(since)s::timestamptz IS NULL OR d.at >= %(since)s)
  AND (%(after_at)s::timestamptz IS NULL OR (d.at, d.drain_id) < (%(after_at)s, %(after_id)s::uuid))
ORDER BY d.at DESC, d.drain_id DESC
LIMIT %(n)s
