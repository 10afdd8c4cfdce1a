-- What some nodes account for among large attempts: failures blamed on them and node time spent on them.
-- Inputs   view base; $min_gpus; $nodes (comma-separated node names).
-- Output   n_failures, node_s.
WITH named AS (
    SELECT unnest(string_to_array($nodes, ',')) AS node
), spent AS (
    SELECT run_s, unnest(nodes) AS node FROM base WHERE gpus > $min_gpus
)
SELECT (SELECT count(*) FROM base b WHERE b.infra AND b.ended AND b.gpus > $min_gpus
        AND b.fault_node IN (SELECT node FROM named)) AS n_failures,
       coalesce((SELECT sum(s.run_s) FROM spent s WHERE s.node IN (SELECT node FROM named)), 0.0) AS node_s
