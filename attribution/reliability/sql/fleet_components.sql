-- Infrastructure failures per component.
-- Inputs   view failure (failures.py). Output component, cause, n_failures (incidents), n_attempts (they ended), n_nodes (distinct
--          nodes at fault), gpu_s (of the attempts that failed).
SELECT component, cause, count(*) FILTER (WHERE is_first) AS n_failures, count(*) AS n_attempts,
       count(DISTINCT fault_node) AS n_nodes, sum(gpu_s) AS gpu_s
FROM failure
GROUP BY 1, 2
ORDER BY n_failures DESC, 1, 2
