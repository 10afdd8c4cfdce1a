-- How attempts ended, by count and by GPU time.
-- Inputs   view base. Output state, n_attempts, gpu_s, node_s, n_infra (ended by infrastructure), infra_gpu_s,
--          n_infra_without_gpus (of n_infra, those that held no GPU, or of which that is not known),
--          n_set_down (ended because a person set a node DOWN; not in n_infra),
--          n_unknown_gpus (of n_attempts, those whose GPUs accounting does not record; their gpu_s is 0).
SELECT state, count(*) AS n_attempts, sum(gpu_s) AS gpu_s, sum(node_s) AS node_s,
       count(*) FILTER (WHERE infra) AS n_infra, coalesce(sum(gpu_s) FILTER (WHERE infra), 0.0) AS infra_gpu_s,
       count(*) FILTER (WHERE infra AND gpus = 0) AS n_infra_without_gpus,
       count(*) FILTER (WHERE cause = 'node_set_down') AS n_set_down,
       count(*) FILTER (WHERE n_gpus IS NULL) AS n_unknown_gpus
FROM base
WHERE ended
GROUP BY state
ORDER BY n_attempts DESC, state
