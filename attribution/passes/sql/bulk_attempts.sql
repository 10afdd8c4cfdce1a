-- The failed attempts of a slice.
-- Inputs   table attempts; $since_us, $until_us (bounds of end_us), $first_month, $last_month, $states (comma-separated).
-- Output   every column of attempts.
SELECT *
FROM attempts
WHERE end_us >= $since_us AND end_us < $until_us AND month >= $first_month AND month <= $last_month
  AND state IN (SELECT unnest(string_to_array($states, ',')))
