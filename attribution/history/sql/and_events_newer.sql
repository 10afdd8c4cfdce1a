-- Follows pg_events.sql: only events after the exported months or before them, and those that arrived after their month's export.
-- Inputs   $3 end of the exported months (timestamptz); $4, $5 arrays, oldest first: the exported months' first instants, and when each
--          was exported.
  AND (e.at >= $3 OR e.at < ($4)[1]
       OR e.event_id IN (SELECT k.event_id FROM probing.event_key k
                         WHERE k.received_at >= (SELECT min(x.at) FROM unnest($5) AS x(at))
                           AND k.received_at >= ($5)[width_bucket(k.at, $4)]))
