-- The strongest event in the window of each failed attempt of a slice, and how many events lie in it.
-- Inputs   tables attempt_nodes (attempt_id, node_idx, start_us, end_us, judged: true for states that get a verdict, month), events
--          (node_idx, at_us, sort_idx, row, month) and sort (sort_idx, rank); $since_us, $until_us (bounds of end_us), $before_us,
--          $after_us (window), $bucket_us (= before + after), $n_nodes (node_idx < n_nodes), $first_month, $last_month,
--          $first_event_month, $last_event_month (partitions that can hold rows).
-- Output   attempt_id, key (rank << 40 | row, smallest = strongest), n (events in the window).
WITH ends AS (
    SELECT attempt_id, end_us, (end_us - $before_us) / $bucket_us * $n_nodes + node_idx AS b
    FROM attempt_nodes
    WHERE judged AND end_us >= $since_us AND end_us < $until_us AND month >= $first_month AND month <= $last_month
), windows AS (
    SELECT attempt_id, end_us, b FROM ends
    UNION ALL
    SELECT attempt_id, end_us, b + $n_nodes AS b FROM ends
), seen AS (
    SELECT e.at_us, s.rank * 1099511627776 + e.row AS k, e.at_us / $bucket_us * $n_nodes + e.node_idx AS b
    FROM events e
    JOIN sort s ON s.sort_idx = e.sort_idx
    WHERE e.at_us >= $since_us - $before_us AND e.at_us < $until_us + $after_us
      AND e.month >= $first_event_month AND e.month <= $last_event_month
)
SELECT w.attempt_id, min(s.k) AS key, count(*) AS n
FROM windows w
JOIN seen s ON s.b = w.b AND s.at_us BETWEEN w.end_us - $before_us AND w.end_us + $after_us
GROUP BY w.attempt_id
