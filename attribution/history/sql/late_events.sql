-- Whether events of a month were stored since its export.
-- Inputs   :since, :until  bounds of the month (timestamptz, half open); :received  when it was exported.
-- Output   one row, or none.
SELECT 1 AS is_late
FROM probing.event_key k
WHERE k.at >= CAST(:since AS timestamptz) AND k.at < CAST(:until AS timestamptz) AND k.received_at >= CAST(:received AS timestamptz)
LIMIT 1
