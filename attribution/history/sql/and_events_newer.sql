-- Follows pg_events.sql: only events after the exported months, and those that arrived late.
-- Inputs   $3 end of the exported months; $4 when they were exported (timestamptz).
  AND (e.at >= $3
       OR EXISTS (SELECT 1 FROM probing.event_key k WHERE k.event_id = e.event_id AND k.received_at >= $4))
