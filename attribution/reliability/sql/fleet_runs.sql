-- Runs with the columns that their accounts need: large, long or failed ones first.
-- Inputs   view base; $min_gpus, $limit.
-- Output   cluster, user, run_key, gpus, n_attempts, run_s.
SELECT cluster, "user", run_key, max(gpus) AS gpus, count(*) AS n_attempts, sum(run_s) AS run_s
FROM base
WHERE gpus >= $min_gpus
GROUP BY 1, 2, 3
ORDER BY sum(gpu_s) DESC, run_key
LIMIT $limit
