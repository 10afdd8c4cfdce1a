-- Jobs that infrastructure ended repeatedly, and the attempts that they preempted when they returned.
-- Inputs   views base and everybody (base without its selection: whom they preempted); $min_failures, $near_us.
-- Output   cluster, job_id, user, gpus, n_attempts, n_failures, causes (comma separated), n_preempted, preempted_gpus.
WITH failures AS (
    SELECT cluster, job_id, coalesce(cause, 'unjudged') AS blamed FROM base WHERE infra AND ended
), stormy AS (
    SELECT cluster, job_id, count(*) AS n_failures, string_agg(DISTINCT blamed, ',') AS causes
    FROM failures
    GROUP BY cluster, job_id
    HAVING count(*) >= $min_failures
), jobs AS (
    SELECT b.cluster, b.job_id, max(b."user") AS "user", max(b.gpus) AS gpus, count(*) AS n_attempts
    FROM base b
    JOIN stormy s ON s.cluster = b.cluster AND s.job_id = b.job_id
    GROUP BY b.cluster, b.job_id
), starts AS (
    SELECT b.cluster, b.job_id, b.start_us, unnest(b.nodes) AS node
    FROM base b
    JOIN stormy s ON s.cluster = b.cluster AND s.job_id = b.job_id
    WHERE b.attempt > 1
), both_buckets AS (
    SELECT *, start_us / $near_us AS k FROM starts
    UNION ALL
    SELECT *, start_us / $near_us - 1 AS k FROM starts
), preempted AS (
    SELECT cluster, job_id, submit_us, end_us, gpus, unnest(nodes) AS node FROM everybody WHERE state = 'PREEMPTED' AND ended
), victims AS (
    SELECT DISTINCT s.cluster, s.job_id, p.job_id AS victim, p.submit_us, p.gpus
    FROM both_buckets s
    JOIN preempted p
      ON p.cluster = s.cluster AND p.node = s.node AND s.k = p.end_us / $near_us
     AND s.start_us BETWEEN p.end_us - 1000000 AND p.end_us + $near_us AND p.job_id <> s.job_id
), sums AS (
    SELECT cluster, job_id, count(*) AS n_preempted, sum(gpus) AS preempted_gpus FROM victims GROUP BY 1, 2
)
SELECT j.cluster, j.job_id, j."user", j.gpus, j.n_attempts, s.n_failures, s.causes,
       coalesce(v.n_preempted, 0) AS n_preempted, coalesce(v.preempted_gpus, 0) AS preempted_gpus
FROM jobs j
JOIN stormy s ON s.cluster = j.cluster AND s.job_id = j.job_id
LEFT JOIN sums v ON v.cluster = j.cluster AND v.job_id = j.job_id
ORDER BY s.n_failures DESC, j.job_id
