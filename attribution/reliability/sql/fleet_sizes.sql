-- Attempts and GPU time by size.
-- Inputs   view base. Output size (GPUs, a power of two), n_attempts, gpu_s, run_s, node_s, n_infra, n_unknown_gpus.
SELECT size, count(*) AS n_attempts, sum(gpu_s) AS gpu_s, sum(run_s) AS run_s, sum(node_s) AS node_s,
       count(*) FILTER (WHERE infra AND ended) AS n_infra, count(*) FILTER (WHERE n_gpus IS NULL) AS n_unknown_gpus
FROM base
GROUP BY size
ORDER BY size
