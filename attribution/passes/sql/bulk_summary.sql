-- Counts of the events in the windows of a slice's failed attempts: enough to find those that need the judge.
-- Inputs   as bulk_strongest.sql; attempt_nodes has start_us; sort has root (true when such an event alone can change a verdict or reach
--          "possible") and own (true for user-type GPU errors); $slack_us (Slurm's whole seconds), $own_us (how long
--          before the end such an error can have ended it).
-- Output   attempt_id, n_root, last_own_row (row of the last user-type error while it ran; null without one). Rows are numbered by time.
WITH ends AS (
    SELECT attempt_id, start_us, end_us, (end_us - $before_us) / $bucket_us * $n_nodes + node_idx AS b
    FROM attempt_nodes
    WHERE judged AND end_us >= $since_us AND end_us < $until_us AND month >= $first_month AND month <= $last_month
), windows AS (
    SELECT attempt_id, start_us, end_us, b FROM ends
    UNION ALL
    SELECT attempt_id, start_us, end_us, b + $n_nodes AS b FROM ends
), seen AS (
    SELECT e.at_us, e.row, s.root, e.at_us / $bucket_us * $n_nodes + e.node_idx AS b
    FROM events e
    JOIN sort s ON s.sort_idx = e.sort_idx
    WHERE (s.root OR s.own) AND e.at_us >= $since_us - $before_us AND e.at_us < $until_us + $after_us
      AND e.month >= $first_event_month AND e.month <= $last_event_month
)
SELECT w.attempt_id,
       sum(CASE WHEN s.root THEN 1 ELSE 0 END) AS n_root,
       max(CASE WHEN NOT s.root AND s.at_us BETWEEN greatest(w.start_us - $slack_us, w.end_us - $own_us) AND w.end_us + $slack_us THEN s.row END) AS last_own_row
FROM windows w
JOIN seen s ON s.b = w.b AND s.at_us BETWEEN w.end_us - $before_us AND w.end_us + $after_us
GROUP BY w.attempt_id
