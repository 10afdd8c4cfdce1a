-- Completed attempts, and those of them on whose nodes a check failed while they ran.
-- Inputs   view base; table event (cluster, node, at_us, severity, source, recovered).
-- Output   n_good, n_checked_bad.
WITH good AS (
    SELECT cluster, job_id, submit_us, attempt, start_us, end_us, nodes FROM base WHERE ended AND state = 'COMPLETED'
), there AS (
    SELECT cluster, job_id, submit_us, attempt, start_us, end_us, unnest(nodes) AS node FROM good
), bad AS (
    SELECT cluster, node, at_us FROM event
    WHERE source = 'check' AND severity IN ('high', 'low') AND NOT recovered
), met AS (
    SELECT DISTINCT t.cluster, t.job_id, t.submit_us, t.attempt
    FROM there t JOIN bad b ON b.cluster = t.cluster AND b.node = t.node
    WHERE b.at_us >= t.start_us AND b.at_us <= t.end_us
)
SELECT (SELECT count(*) FROM good) AS n_good, (SELECT count(*) FROM met) AS n_checked_bad
