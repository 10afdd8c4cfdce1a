-- Jobs that infrastructure ended again and again, and what they preempted on coming back.
-- Inputs   view base; $min_failures, $near_us.
-- Output   cluster, job_id, user, gpus, n_attempts, n_failures, causes (comma separated), n_preempted, preempted_gpus.
WITH jobs AS (
    SELECT cluster, job_id, max("user") AS "user", max(gpus) AS gpus, count(*) AS n_attempts,
           count(*) FILTER (WHERE infra AND ended) AS n_failures,
           string_agg(DISTINCT CASE WHEN infra AND ended THEN coalesce(cause, 'unjudged') END, ',') AS causes
    FROM base
    GROUP BY cluster, job_id
    HAVING count(*) FILTER (WHERE infra AND ended) >= $min_failures
), starts AS (
    SELECT b.cluster, b.job_id, b.start_us, unnest(b.nodes) AS node
    FROM base b JOIN jobs j ON j.cluster = b.cluster AND j.job_id = b.job_id
    WHERE b.attempt > 1
), both_buckets AS (
    SELECT *, start_us / $near_us AS k FROM starts
    UNION ALL
    SELECT *, start_us / $near_us - 1 AS k FROM starts
), preempted AS (
    SELECT cluster, job_id, submit_us, end_us, gpus, unnest(nodes) AS node FROM base WHERE state = 'PREEMPTED' AND ended
), victims AS (
    SELECT DISTINCT s.cluster, s.job_id, p.job_id AS victim, p.submit_us, p.gpus
    FROM both_buckets s
    JOIN preempted p
      ON p.cluster = s.cluster AND p.node = s.node AND s.k = p.end_us / $near_us
     AND s.start_us BETWEEN p.end_us - 1000000 AND p.end_us + $near_us AND p.job_id <> s.job_id
), sums AS (
    SELECT cluster, job_id, count(*) AS n_preempted, sum(gpus) AS preempted_gpus FROM victims GROUP BY 1, 2
)
SELECT j.cluster, j.job_id, j."user", j.gpus, j.n_attempts, j.n_failures, coalesce(j.causes, '') AS causes,
       coalesce(s.n_preempted, 0) AS n_preempted, coalesce(s.preempted_gpus, 0) AS preempted_gpus
FROM jobs j
LEFT JOIN sums s ON s.cluster = j.cluster AND s.job_id = j.job_id
ORDER BY j.n_failures DESC, j.job_id
