-- How many nodes were in use.
-- Inputs   view base. Output n_nodes.
SELECT count(*) AS n_nodes FROM (SELECT DISTINCT cluster, node FROM (SELECT cluster, unnest(nodes) AS node FROM base) AS u) AS d
