-- The paper's seven signals and ours, one row per node that was seen in the window.
-- Inputs   views failure, place, piece; tables event, outage, note, exclusion, cleared, sign (kind, code, sign); $recent_us: start of
--          the signals' window (the failures' may be longer).
-- Output   one row per node, by name. Stretches out of service that follow each other without a pause are one.
WITH own AS (
    SELECT node, count(*) FILTER (WHERE n_nodes > 1) AS multi, count(*) FILTER (WHERE n_nodes = 1) AS single
    FROM failure WHERE at_us >= $recent_us GROUP BY node
), ran AS (
    SELECT node, count(*) AS attempts, count(*) FILTER (WHERE n_nodes = 1 AND ended) AS single
    FROM place WHERE end_us > $recent_us OR ended AND end_us >= $recent_us GROUP BY node
), used AS (
    SELECT node, sum(end_us - greatest(start_us, $recent_us)) / 1e6 AS exposure_s FROM piece WHERE end_us > $recent_us GROUP BY node
), xid AS (
    SELECT node, count(DISTINCT code) AS codes FROM event WHERE kind = 'xid' AND NOT job_side AND at_us >= $recent_us GROUP BY node
), away AS (
    SELECT node, sum(opens) AS times FROM (
        SELECT node, CASE WHEN start_us <= max(coalesce(end_us, start_us)) OVER (PARTITION BY node ORDER BY start_us
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 0 ELSE 1 END AS opens
        FROM outage WHERE start_us >= $recent_us) o
    GROUP BY node
), ticket AS (
    SELECT node, count(*) AS n FROM note WHERE action = 'ticket' AND at_us >= $recent_us GROUP BY node
), excl AS (
    SELECT node, count(DISTINCT job_id) AS jobs FROM exclusion WHERE at_us >= $recent_us GROUP BY node
), minor AS (
    SELECT e.node, count(*) FILTER (WHERE s.sign = 'memory') AS memory, count(*) FILTER (WHERE s.sign = 'link') AS link,
           count(*) FILTER (WHERE s.sign = 'pcie') AS pcie,
           count(*) FILTER (WHERE s.sign = 'test') AS test
    FROM event e
    JOIN sign s ON s.kind = e.kind AND (s.code = '' OR s.code = coalesce(e.code, ''))
    LEFT JOIN cleared c ON c.node = e.node
    WHERE NOT e.job_side AND e.at_us >= $recent_us AND (c.at_us IS NULL OR e.at_us >= c.at_us)
    GROUP BY e.node
), ranks AS (
    SELECT node, count(*) AS n FROM event WHERE kind = 'rank_finding' AND job_side AND at_us >= $recent_us GROUP BY node
), again AS (
    SELECT r.node, count(*) AS n FROM (
        SELECT DISTINCT n.node, n.at_us FROM note n
        JOIN failure a ON a.node = n.node AND a.at_us >= n.at_us
        JOIN failure b ON b.node = n.node AND b.at_us < n.at_us
        WHERE n.action = 'repaired') r
    GROUP BY r.node
), every AS (
    SELECT node FROM place UNION SELECT node FROM failure UNION SELECT node FROM away UNION SELECT node FROM note UNION SELECT node FROM xid
)
SELECT every.node,
       coalesce(excl.jobs, 0) AS excl_jobid_count, coalesce(xid.codes, 0) AS xid_cnt, coalesce(ticket.n, 0) AS tickets,
       coalesce(away.times, 0) AS out_count, coalesce(own.multi, 0) AS multi_node_node_fails,
       coalesce(own.single, 0) AS single_node_node_fails,
       CASE WHEN coalesce(ran.single, 0) > 0
            THEN least(1.0, CAST(coalesce(own.single, 0) AS DOUBLE) / ran.single) END AS single_node_node_failure_rate,
       coalesce(used.exposure_s, 0.0) / 86400 AS exposure_days, coalesce(ran.attempts, 0) AS n_attempts,
       coalesce(minor.memory, 0) AS minor_memory, coalesce(minor.link, 0) AS minor_link, coalesce(minor.pcie, 0) AS minor_pcie,
       coalesce(minor.test, 0) AS minor_test,
       coalesce(ranks.n, 0) AS rank_findings, coalesce(again.n, 0) AS recurrences
FROM every
LEFT JOIN used ON used.node = every.node
LEFT JOIN ran ON ran.node = every.node
LEFT JOIN own ON own.node = every.node
LEFT JOIN xid ON xid.node = every.node
LEFT JOIN away ON away.node = every.node
LEFT JOIN ticket ON ticket.node = every.node
LEFT JOIN excl ON excl.node = every.node
LEFT JOIN minor ON minor.node = every.node
LEFT JOIN ranks ON ranks.node = every.node
LEFT JOIN again ON again.node = every.node
ORDER BY every.node
