-- Infrastructure failures per component.
-- Inputs   view base. Output component, cause, n_failures, n_nodes (distinct nodes at fault), gpu_s (of the attempts that failed).
SELECT coalesce(component, 'node') AS component, coalesce(cause, 'unjudged') AS cause, count(*) AS n_failures,
       count(DISTINCT fault_node) AS n_nodes, sum(gpu_s) AS gpu_s
FROM base
WHERE infra AND ended
GROUP BY 1, 2
ORDER BY n_failures DESC, 1, 2
