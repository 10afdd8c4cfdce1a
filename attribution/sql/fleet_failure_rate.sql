-- Failures and exposure of large jobs, for r_f.
-- Inputs   view base; $min_gpus (attempts with more GPUs than this count).
-- Output   n_failures, node_s, n_attempts.
SELECT count(*) FILTER (WHERE infra AND ended) AS n_failures, coalesce(sum(node_s), 0.0) AS node_s, count(*) AS n_attempts
FROM base
WHERE gpus > $min_gpus
