-- Failures and exposure of large jobs, for r_f.
-- Inputs   views base and failure (failures.py); $above_gpus (attempts with more GPUs than this count).
-- Output   n_failures (incidents), node_s, n_attempts.
SELECT (SELECT count(DISTINCT incident) FROM failure WHERE gpus > $above_gpus) AS n_failures,
       coalesce(sum(node_s), 0.0) AS node_s, count(*) AS n_attempts
FROM base
WHERE gpus > $above_gpus
