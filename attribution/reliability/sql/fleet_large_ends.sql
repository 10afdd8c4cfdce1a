-- Large attempts that ended, and those of them that infrastructure ended, by stretch of time and by phase.
-- Inputs   view base; $min_gpus (attempts of so many GPUs or more), $since_us, $bucket_us, $first_us and $last_us (bounds of the phases).
-- Output   n (number of the stretch), phase (0 ended before $first_us, 2 began at $last_us or later, 1 else), n_attempts, n_failed, gpu_s.
SELECT (end_us - $since_us) / $bucket_us AS n,
       CASE WHEN end_us < $first_us THEN 0 WHEN start_us >= $last_us THEN 2 ELSE 1 END AS phase,
       count(*) AS n_attempts, count(*) FILTER (WHERE infra) AS n_failed, sum(gpu_s) AS gpu_s
FROM base
WHERE ended AND gpus >= $min_gpus
GROUP BY 1, 2
ORDER BY 1, 2
