-- Xids of this number in the last 30 days, latest first; without a number those that are grave.
-- Inputs   code, or null.
SELECT e.cluster, e.node, e.at, e.code, e.device, e.message FROM probing.health_event e
WHERE e.kind IN ('xid', 'sxid') AND (e.code = %(code)s OR (%(code)s::text IS NULL AND e.severity = 'high')) AND e.at >= now() - interval '30 days'
ORDER BY e.at DESC
LIMIT 10
