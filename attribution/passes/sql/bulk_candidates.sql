-- Every event in the windows of some attempts of a slice.
-- Inputs   as bulk_strongest.sql; table chosen (attempt_id).
-- Output   attempt_id and every column of events.
WITH ends AS (
    SELECT a.attempt_id, a.end_us, (a.end_us - $before_us) / $bucket_us * $n_nodes + a.node_idx AS b
    FROM attempt_nodes a
    JOIN chosen c ON c.attempt_id = a.attempt_id
    WHERE a.end_us >= $since_us AND a.end_us < $until_us AND a.month >= $first_month AND a.month <= $last_month
), windows AS (
    SELECT attempt_id, end_us, b FROM ends
    UNION ALL
    SELECT attempt_id, end_us, b + $n_nodes AS b FROM ends
), seen AS (
    SELECT e.*, e.at_us / $bucket_us * $n_nodes + e.node_idx AS b
    FROM events e
    WHERE e.at_us >= $since_us - $before_us AND e.at_us < $until_us + $after_us
      AND e.month >= $first_event_month AND e.month <= $last_event_month
)
SELECT w.attempt_id, s.*
FROM windows w
JOIN seen s ON s.b = w.b AND s.at_us BETWEEN w.end_us - $before_us AND w.end_us + $after_us
ORDER BY w.attempt_id, s.row
