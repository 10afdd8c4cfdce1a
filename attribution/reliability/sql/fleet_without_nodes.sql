-- The share of some nodes in large attempts: failures blamed on them, and node time spent on them.
-- Inputs   views base and failure (failures.py); $above_gpus; $nodes (comma-separated node names).
-- Output   n_failures (incidents), node_s.
WITH named AS (
    SELECT unnest(string_to_array($nodes, ',')) AS node
), spent AS (
    SELECT run_s, unnest(nodes) AS node FROM base WHERE gpus > $above_gpus
)
SELECT (SELECT count(DISTINCT f.incident) FROM failure f WHERE f.gpus > $above_gpus
        AND f.fault_node IN (SELECT node FROM named)) AS n_failures,
       coalesce((SELECT sum(s.run_s) FROM spent s WHERE s.node IN (SELECT node FROM named)), 0.0) AS node_s
