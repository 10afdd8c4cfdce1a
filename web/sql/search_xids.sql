-- Xids of this number in the last 30 days, latest first.
-- Inputs   code.
SELECT e.cluster, e.node, e.at, e.device, e.message FROM probing.health_event e
WHERE e.kind IN ('xid', 'sxid') AND e.code = %(code)s AND e.at >= now() - interval '30 days'
ORDER BY e.at DESC
LIMIT 10
