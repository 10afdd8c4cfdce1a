-- Infrastructure failures per component.
-- Inputs   view failure (failures.py). Output component, causes, n_failures (incidents), n_attempts (they ended), n_nodes (distinct
--          nodes at fault).
SELECT component, array_agg(DISTINCT cause) AS causes, count(*) FILTER (WHERE is_first) AS n_failures, count(*) AS n_attempts,
       count(DISTINCT fault_node) AS n_nodes
FROM failure
GROUP BY component
ORDER BY n_failures DESC, component
