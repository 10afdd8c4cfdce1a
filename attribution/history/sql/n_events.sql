-- How many events of a month there are.
-- Inputs   :since, :until  bounds of the month (timestamptz, half open).
-- Output   one row: n_events.
SELECT count(*) AS n_events
FROM probing.health_event e
WHERE e.at >= CAST(:since AS timestamptz) AND e.at < CAST(:until AS timestamptz)
