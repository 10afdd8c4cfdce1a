-- Every check by name and version: its first result, and its results in a span.
-- Inputs   $1, $2 bounds (timestamptz, $1 <= at < $2); $cluster (null = all).
-- Output   name, version, first_us (of all that is stored, microseconds since 1970 UTC), n_results and n_failed (changes stored in the
--          span). A check whose first rows are past their retention is as old as its oldest present result.
SELECT k.name, k.version, (extract(epoch FROM min(k.at)) * 1000000)::bigint AS first_us,
       count(*) FILTER (WHERE k.changed AND k.at >= $1 AND k.at < $2) AS n_results,
       count(*) FILTER (WHERE k.changed AND k.at >= $1 AND k.at < $2 AND k.outcome = 'fail') AS n_failed
FROM (
    SELECT r.name, r.version, r.at, r.outcome, true AS changed FROM probing.check_result r
    WHERE $cluster::text IS NULL OR r.cluster = $cluster
    UNION ALL
    SELECT n.name, n.version, n.at, n.outcome, false FROM probing.check_now n
    WHERE $cluster::text IS NULL OR n.cluster = $cluster
) k
GROUP BY k.name, k.version
ORDER BY k.name, k.version
