-- Everything known about one node, latest first.
-- Inputs   node, since, until, n.
SELECT t.at, t.what, t.severity, t.job_id, t.device, t.message
FROM ops.node_timeline(%(node)s, %(since)s, %(until)s) t
WHERE t.at < %(until)s
ORDER BY t.at DESC, t.what DESC
LIMIT %(n)s
