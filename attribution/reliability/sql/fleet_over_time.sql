-- Infrastructure failures per component and bucket of time, with the GPU time spent in the bucket.
-- Inputs   views base and failure (failures.py); $bucket_us, $since_us, $until_us.
-- Output   bucket_us (start), component, n_failures (incidents that began in it), gpu_s (all attempts, in that bucket). Buckets without failures have component ''.
-- A bucket may have failures and no GPU time: an attempt that ended as it began, or in the instant with which the bucket begins.
-- A suspended attempt counts with the share of its life that it was not suspended (fleet_base.sql).
-- Each attempt is spread over the few buckets it touches: an equality, never a range join.
WITH spans AS (
    SELECT gpus * active_frac AS gpus, greatest(start_us, $since_us) AS from_us, least(last_us, $until_us) AS to_us
    FROM base
), touched AS (
    SELECT gpus, from_us, to_us,
           unnest(range((from_us - $since_us) / $bucket_us, (to_us - 1 - $since_us) / $bucket_us + 1)) AS n
    FROM spans
    WHERE to_us > from_us
), exposure AS (
    SELECT n, sum(gpus * (least(to_us, $since_us + (n + 1) * $bucket_us) - greatest(from_us, $since_us + n * $bucket_us)) / 1e6) AS gpu_s
    FROM touched
    GROUP BY n
), failures AS (
    SELECT (end_us - $since_us) / $bucket_us AS n, component, count(*) AS n_failures
    FROM failure
    WHERE is_first
    GROUP BY 1, 2
)
SELECT $since_us + coalesce(e.n, f.n) * $bucket_us AS bucket_us, coalesce(f.component, '') AS component,
       coalesce(f.n_failures, 0) AS n_failures, coalesce(e.gpu_s, 0.0) AS gpu_s
FROM exposure e
FULL OUTER JOIN failures f ON f.n = e.n
ORDER BY 1, 2
