-- The first end in a span of an attempt that gets a verdict.
-- Inputs   $1 true = only of those without a current verdict; $2, $3 bounds (timestamptz, half open); $4 the states that get one.
-- Output   one row: end_at, null when there is none.
SELECT (SELECT a.end_at
        FROM probing.job_attempt a
        WHERE a.end_at >= $2 AND a.end_at < $3
          AND a.state <> 'COMPLETED'
          AND a.state = ANY($4::text[])
          AND a.start_at IS NOT NULL
          AND (NOT $1 OR a.judged_at IS NULL)
        ORDER BY a.end_at
        LIMIT 1) AS end_at
