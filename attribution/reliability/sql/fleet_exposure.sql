-- All GPU time and node time of the span.
-- Inputs   view base. Output gpu_s, node_s, n_attempts, n_ended.
SELECT coalesce(sum(gpu_s), 0.0) AS gpu_s, coalesce(sum(node_s), 0.0) AS node_s, count(*) AS n_attempts,
       count(*) FILTER (WHERE ended) AS n_ended
FROM base
