-- Follows pg_attempts.sql: only attempts that ended or were judged again after their month's export, or before the first exported month.
-- Inputs   $3 end of the exported months (timestamptz); $4, $5 arrays, oldest first: the exported months' first instants, and when each
--          was exported.
  AND (a.end_at >= $3 OR (a.judged_at >= ($5)[width_bucket(a.end_at, $4)]) IS NOT FALSE)
