-- Of the attempts that infrastructure ended: how many have a failed check among their evidence, and how many only other sources, by cause.
-- Inputs   view base; table event (event_id, source).
-- Output   cause, n_attempts, n_by_check (a check is among the evidence), n_by_node (any source of the node is), n_without (no evidence of a node).
WITH failed AS (
    SELECT cluster, job_id, submit_us, attempt, coalesce(cause, 'unjudged') AS cause, evidence FROM base WHERE infra AND ended
), parts AS (
    SELECT cluster, job_id, submit_us, attempt, unnest(evidence) AS event_id FROM failed WHERE evidence IS NOT NULL
), marks AS (
    SELECT p.cluster, p.job_id, p.submit_us, p.attempt,
           max(CASE WHEN e.source = 'check' THEN 1 ELSE 0 END) AS by_check,
           max(CASE WHEN e.source NOT IN ('joblog', 'probe', 'dump') THEN 1 ELSE 0 END) AS by_node
    FROM parts p JOIN event e ON e.event_id = p.event_id
    GROUP BY p.cluster, p.job_id, p.submit_us, p.attempt
)
SELECT f.cause, count(*) AS n_attempts, CAST(coalesce(sum(m.by_check), 0) AS BIGINT) AS n_by_check,
       CAST(coalesce(sum(m.by_node), 0) AS BIGINT) AS n_by_node,
       count(*) - CAST(coalesce(sum(m.by_node), 0) AS BIGINT) AS n_without
FROM failed f
LEFT JOIN marks m ON m.cluster = f.cluster AND m.job_id = f.job_id AND m.submit_us = f.submit_us AND m.attempt = f.attempt
GROUP BY f.cause
ORDER BY n_attempts DESC, f.cause
