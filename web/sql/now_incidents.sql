-- Incidents of the last day.
-- Inputs   cluster.
SELECT i.cluster, i.incident_id, i.onset_at, i.cause, i.domain, i.n_attempts, i.n_jobs, i.nodes, i.summary, i.place
FROM ops.incidents i
WHERE i.cluster = :cluster AND i.onset_at >= now() - interval '24 hours'
ORDER BY i.onset_at DESC
LIMIT 50
