-- Every event on the nodes of one attempt in a window of its own (a hang moves the window far back).
-- Inputs   tables attempt_nodes, events; $attempt_id, $since_us, $until_us, $first_month, $last_month (of the attempt's end),
--          $first_event_month, $last_event_month.
-- Output   every column of events.
SELECT e.*
FROM events e
JOIN (SELECT DISTINCT node_idx FROM attempt_nodes
      WHERE attempt_id = $attempt_id AND month >= $first_month AND month <= $last_month) n ON n.node_idx = e.node_idx
WHERE e.at_us BETWEEN $since_us AND $until_us
  AND e.month >= $first_event_month AND e.month <= $last_event_month
ORDER BY e.row
