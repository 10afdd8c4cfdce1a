-- Events that lay in a span until their times were corrected.
-- Inputs   $1, $2 bounds of the time that they had (timestamptz, $1 <= at < $2); $3 corrections before it need no look.
-- Output   event_id (text); at_us, their time now (a timestamp, which Arrow casts to microseconds since 1970 UTC).
SELECT k.event_id::text AS event_id, k.at AS at_us
FROM probing.event_key k
WHERE k.ahead_s <> 0 AND k.received_at >= $3
  AND k.at + make_interval(secs => k.ahead_s) >= $1 AND k.at + make_interval(secs => k.ahead_s) < $2
