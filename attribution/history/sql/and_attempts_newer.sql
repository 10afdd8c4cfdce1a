-- Follows pg_attempts.sql: only attempts that ended or were judged again after the export.
-- Inputs   $3 end of the exported months; $4 when they were exported (timestamptz).
  AND (a.end_at IS NULL OR a.end_at >= $3 OR a.judged_at IS NULL OR a.judged_at >= $4)
