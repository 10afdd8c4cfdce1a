-- The nodes of some attempts of a slice.
-- Inputs   table attempt_nodes; table chosen (attempt_id); $since_us, $until_us, $first_month, $last_month.
-- Output   attempt_id, node_idx.
SELECT a.attempt_id, a.node_idx
FROM attempt_nodes a
JOIN chosen c ON c.attempt_id = a.attempt_id
WHERE a.end_us >= $since_us AND a.end_us < $until_us AND a.month >= $first_month AND a.month <= $last_month
