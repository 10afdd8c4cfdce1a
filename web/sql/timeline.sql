-- Everything known about one node, latest first: what ops.node_timeline knows, tests that did not pass, rounds that did, repairs.
-- Inputs   cluster, node, since, until, n.
-- Output   the columns of ops.node_timeline, and ref: the job as its owner names it, null where none is named or accounting has not told.
WITH shown AS (
    SELECT t.at, t.what, t.severity, t.job_id, t.device, t.message
    FROM (
        -- A check that passes is grave nowhere.
        SELECT o.at, o.what, CASE WHEN o.what NOT LIKE 'check %% ok' THEN o.severity END AS severity, o.job_id, o.device, o.message
        FROM ops.node_timeline(%(node)s, %(since)s, %(until)s, %(cluster)s) o
        UNION ALL
        SELECT r.at, 'test ' || r.test || ' ' || r.outcome, CASE r.outcome WHEN 'fail' THEN 'high' WHEN 'warn' THEN 'low' END,
               r.job_id, r.device, concat_ws(' ', 'with ' || nullif(r.peer, '') || ':', r.message)
        FROM probing.diagnostic_result r
        WHERE r.cluster = %(cluster)s AND r.node = %(node)s AND r.at >= %(since)s AND r.at < %(until)s AND r.outcome NOT IN ('ok', 'absent')
        UNION ALL
        SELECT max(r.at), 'test round passed', NULL, max(r.job_id), NULL, string_agg(DISTINCT r.test, ', ')
        FROM probing.diagnostic_result r
        WHERE r.cluster = %(cluster)s AND r.node = %(node)s AND r.at >= %(since)s AND r.at < %(until)s AND r.outcome <> 'absent'
        GROUP BY r.round_id
        HAVING bool_and(r.outcome = 'ok')
        UNION ALL
        SELECT i.opened_at, 'repair opened', NULL, NULL, NULL, i.reason
        FROM probing.repair_incident i
        WHERE i.cluster = %(cluster)s AND i.node = %(node)s AND i.opened_at >= %(since)s AND i.opened_at < %(until)s
        UNION ALL
        SELECT i.changed_at, 'repair ' || i.state, NULL, NULL, NULL, i.why
        FROM probing.repair_incident i
        WHERE i.cluster = %(cluster)s AND i.node = %(node)s AND i.changed_at >= %(since)s AND i.changed_at < %(until)s AND i.changed_at > i.opened_at
    ) t
    WHERE t.at < %(until)s
    ORDER BY t.at DESC, t.what DESC
    LIMIT %(n)s
)
SELECT s.at, s.what, s.severity, s.job_id, s.device, s.message,
       (SELECT probing.job_ref(a) FROM probing.job_attempt a WHERE a.cluster = %(cluster)s AND a.job_id = s.job_id ORDER BY a.submit_at DESC LIMIT 1) AS ref
FROM shown s
ORDER BY s.at DESC, s.what DESC
