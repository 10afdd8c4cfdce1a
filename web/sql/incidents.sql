-- Incidents, latest onset first.
-- Inputs   cluster; since, until; after_at, after_id: the last row of the page before; n.
SELECT i.cluster, i.incident_id, i.onset_at, i.cause, i.domain, i.n_attempts, i.n_jobs, i.nodes, i.summary, i.place
FROM ops.incidents i
WHERE i.cluster = %(cluster)s AND i.onset_at >= %(since)s AND i.onset_at < %(until)s
  AND (%(after_at)s::timestamptz IS NULL OR (i.onset_at, i.incident_id) < (%(after_at)s, %(after_id)s::uuid))
ORDER BY i.onset_at DESC, i.incident_id DESC
LIMIT %(n)s
