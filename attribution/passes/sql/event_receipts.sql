-- When the server stored some events.
-- Inputs   :ids  event ids.
-- Output   event_id, received_at; events whose keys have aged are missing.
SELECT k.event_id, k.received_at FROM probing.event_key k WHERE k.event_id = ANY(CAST(:ids AS uuid[]))
