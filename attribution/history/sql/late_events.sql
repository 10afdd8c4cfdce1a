-- Whether events of a month were stored since its export, or their times were corrected, also out of the month.
-- Inputs   :since, :until  bounds of the month (timestamptz, half open); :received  when it was exported.
-- Output   one row, or none.
SELECT 1 AS is_late
FROM probing.event_key k
WHERE k.received_at >= CAST(:received AS timestamptz)
  AND (k.at >= CAST(:since AS timestamptz) AND k.at < CAST(:until AS timestamptz)
       OR k.ahead_s <> 0 AND k.at + make_interval(secs => k.ahead_s) >= CAST(:since AS timestamptz)
          AND k.at + make_interval(secs => k.ahead_s) < CAST(:until AS timestamptz))
LIMIT 1
