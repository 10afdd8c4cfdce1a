-- How many GPUs a node of the cluster has: the most that were held at once on 5 % or more of the 100 nodes with the most GPU time.
-- Inputs   view everybody.
-- Output   gpus; no row without an attempt with GPUs.
-- An attempt that was suspended for others is left out: its GPUs are theirs, too.
-- What was held for less than 1 % of a node's time in use does not count: accounting may have lost some of an attempt's nodes.
WITH parts AS (
    SELECT cluster, unnest(nodes) AS node, CAST(gpus AS DOUBLE) / n_nodes AS held, start_us, last_us
    FROM everybody
    WHERE gpus > 0 AND n_nodes > 0 AND last_us > start_us AND active_frac = 1.0
), busy AS (
    SELECT cluster, node FROM parts GROUP BY cluster, node ORDER BY sum(held * (last_us - start_us)) DESC, node LIMIT 100
), edges AS (
    SELECT p.cluster, p.node, p.start_us AS at_us, p.held AS change FROM parts p JOIN busy b ON b.cluster = p.cluster AND b.node = p.node
    UNION ALL
    SELECT p.cluster, p.node, p.last_us AS at_us, -p.held AS change FROM parts p JOIN busy b ON b.cluster = p.cluster AND b.node = p.node
), instants AS (
    SELECT cluster, node, at_us, sum(change) AS change FROM edges GROUP BY cluster, node, at_us
), levels AS (
    SELECT cluster, node, lead(at_us) OVER (PARTITION BY cluster, node ORDER BY at_us) - at_us AS us,
           ceil(sum(change) OVER (PARTITION BY cluster, node ORDER BY at_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - 1e-3) AS gpus
    FROM instants
), lasted AS (
    SELECT cluster, node, gpus, sum(us) AS us, sum(sum(us)) OVER (PARTITION BY cluster, node) AS all_us
    FROM levels
    WHERE us IS NOT NULL AND gpus >= 1
    GROUP BY cluster, node, gpus
), most AS (
    SELECT cluster, node, max(gpus) AS gpus FROM lasted WHERE us >= 0.01 * all_us GROUP BY cluster, node
)
SELECT CAST(gpus AS BIGINT) AS gpus FROM most GROUP BY gpus HAVING count(*) >= 0.05 * (SELECT count(*) FROM most) ORDER BY gpus DESC LIMIT 1
