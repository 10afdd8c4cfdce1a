-- Results of tests of nodes, latest first.
-- Inputs   cluster; filters, null where not asked for; after_at, after_id: the last row of the page before; n.
SELECT r.*
FROM probing.diagnostic_result r
WHERE r.cluster = %(cluster)s
  AND (%(node)s::text IS NULL OR r.node = %(node)s OR r.peer = %(node)s)
  AND (%(test)s::text IS NULL OR r.test = %(test)s)
  AND (%(outcome)s::text IS NULL OR r.outcome = %(outcome)s)
  AND (%(round_id)s::uuid IS NULL OR r.round_id = %(round_id)s::uuid)
  AND (%(incident_id)s::uuid IS NULL OR r.incident_id = %(incident_id)s::uuid)
  AND (%(since)s::timestamptz IS NULL OR r.at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.at < %(until)s)
  AND (%(after_at)s::timestamptz IS NULL OR (r.at, r.result_id) < (%(after_at)s, %(after_id)s::uuid))
ORDER BY r.at DESC, r.result_id DESC
LIMIT %(n)s
