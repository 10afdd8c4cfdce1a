-- The cost of each node's failures in the window.
-- Inputs   view failure; $recent_us; $cap_s: most work lost by one ended attempt, seconds.
-- Output   node, n_failures, n_jobs, n_users, gpu_h, n_unknown_gpus (attempts without recorded GPUs).
SELECT node, count(*) AS n_failures, count(DISTINCT job_id) AS n_jobs, count(DISTINCT "user") AS n_users,
       sum(least(run_s, $cap_s) * coalesce(n_gpus, 0)) / 3600 AS gpu_h, count(*) FILTER (WHERE n_gpus IS NULL) AS n_unknown_gpus
FROM failure
WHERE at_us >= $recent_us
GROUP BY node
