-- How many nodes were in use by attempts with GPUs, or with an unknown number of them: a node of CPUs alone has no GPU to use.
-- Inputs   view base. Output n_nodes, n_known (attempts with GPUs), n_unknown_gpus (attempts whose GPUs accounting does not record).
SELECT count(*) AS n_nodes, (SELECT count(*) FROM base WHERE n_gpus > 0) AS n_known, (SELECT count(*) FROM base WHERE n_gpus IS NULL) AS n_unknown_gpus
FROM (SELECT DISTINCT cluster, node FROM (SELECT cluster, unnest(nodes) AS node FROM base WHERE n_gpus IS NULL OR n_gpus > 0) AS u) AS d
