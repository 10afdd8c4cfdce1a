-- Work lost to infrastructure, first and second order, by size of the attempt that lost it.
-- Inputs   view lost (fleet_lost.sql).
-- Output   size, n_first, first_gpu_s, n_second, second_gpu_s.
SELECT size, count(*) FILTER (WHERE is_first) AS n_first, coalesce(sum(gpu_s) FILTER (WHERE is_first), 0.0) AS first_gpu_s,
       count(*) FILTER (WHERE NOT is_first) AS n_second, coalesce(sum(gpu_s) FILTER (WHERE NOT is_first), 0.0) AS second_gpu_s
FROM lost
GROUP BY size
ORDER BY 1
