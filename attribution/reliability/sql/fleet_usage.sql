-- GPU time in use and GPU time lost, by stretch of time.
-- Inputs   views base and lost (fleet_lost.sql); $bucket_us, $since_us, $until_us.
-- Output   n (number of the stretch), gpu_s (all attempts, in that stretch), lost_gpu_s (of attempts that ended in it; of
--          each at most the time that it held in the span).
-- A suspended attempt counts with the share of its life that it was not suspended (fleet_base.sql).
-- Each attempt is spread over the few stretches it touches: an equality, never a range join.
WITH spans AS (
    SELECT gpus * active_frac AS gpus, greatest(start_us, $since_us) AS from_us, least(last_us, $until_us) AS to_us
    FROM base
    WHERE gpus > 0
), touched AS (
    SELECT gpus, from_us, to_us,
           unnest(range((from_us - $since_us) / $bucket_us, (to_us - 1 - $since_us) / $bucket_us + 1)) AS n
    FROM spans
    WHERE to_us > from_us
), used AS (
    SELECT n, sum(gpus * (least(to_us, $since_us + (n + 1) * $bucket_us) - greatest(from_us, $since_us + n * $bucket_us)) / 1e6) AS gpu_s
    FROM touched
    GROUP BY n
), gone AS (
    SELECT (end_us - $since_us) / $bucket_us AS n, sum(span_gpu_s) AS gpu_s FROM lost GROUP BY 1
)
SELECT coalesce(u.n, g.n) AS n, coalesce(u.gpu_s, 0.0) AS gpu_s, coalesce(g.gpu_s, 0.0) AS lost_gpu_s
FROM used u
FULL OUTER JOIN gone g ON g.n = u.n
ORDER BY 1
