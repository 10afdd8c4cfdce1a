-- How many nodes were in use by attempts with GPUs, or of which nobody knows whether they had any: a node of CPUs alone has no GPU to use.
-- Inputs   view base. Output n_nodes.
SELECT count(*) AS n_nodes FROM (SELECT DISTINCT cluster, node FROM (SELECT cluster, unnest(nodes) AS node FROM base WHERE n_gpus IS NULL OR n_gpus > 0) AS u) AS d
