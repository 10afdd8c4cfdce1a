-- GPU time free on nodes that are partly in use, by stretch of time: a job of whole nodes cannot use it.
-- Inputs   views base and everybody (base without its selection: what others hold of a node is not free); $bucket_us, $since_us, $until_us, $gpus_per_node.
-- Output   n (number of the stretch), free_gpu_s.
-- Only attempts that hold less than their whole nodes leave a part free; per node their starts and ends are added up in order of time.
WITH here AS (
    SELECT DISTINCT cluster, node FROM (SELECT cluster, unnest(nodes) AS node FROM base WHERE gpus > 0) AS u
), shared AS (
    SELECT cluster, unnest(nodes) AS node, CAST(gpus AS DOUBLE) / n_nodes AS held,
           greatest(start_us, $since_us) AS from_us, least(last_us, $until_us) AS to_us
    FROM everybody
    WHERE gpus > 0 AND gpus < n_nodes * $gpus_per_node
), parts AS (
    SELECT s.* FROM shared s JOIN here h ON h.cluster = s.cluster AND h.node = s.node
), edges AS (
    SELECT cluster, node, from_us AS at_us, held AS change FROM parts WHERE to_us > from_us
    UNION ALL
    SELECT cluster, node, to_us AS at_us, -held AS change FROM parts WHERE to_us > from_us
), instants AS (
    SELECT cluster, node, at_us, sum(change) AS change FROM edges GROUP BY cluster, node, at_us
), levels AS (
    SELECT at_us AS from_us, lead(at_us) OVER (PARTITION BY cluster, node ORDER BY at_us) AS to_us,
           sum(change) OVER (PARTITION BY cluster, node ORDER BY at_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS held
    FROM instants
), free AS (
    SELECT from_us, to_us, $gpus_per_node - held AS gpus,
           unnest(range((from_us - $since_us) / $bucket_us, (to_us - 1 - $since_us) / $bucket_us + 1)) AS n
    FROM levels
    WHERE to_us IS NOT NULL AND held > 1e-6 AND held < $gpus_per_node
)
SELECT n, sum(gpus * (least(to_us, $since_us + (n + 1) * $bucket_us) - greatest(from_us, $since_us + n * $bucket_us)) / 1e6) AS free_gpu_s
FROM free
GROUP BY n
ORDER BY n
