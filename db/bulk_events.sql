-- Move a batch of events from the temporary table `incoming` into place, each id once, as probing.deliver does.
-- Inputs   incoming (the columns of probing.health_event). No node's agent dated them: their times are never corrected (ahead_s 0).
-- Output   one row: accepted (new events, rows).
-- Events of no node (jobs that never started) are evidence for no attempt: they are not noted as late.
WITH fresh AS (
    INSERT INTO probing.event_key (event_id, at, ahead_s)
    SELECT DISTINCT ON (event_id) event_id, at, 0 FROM incoming ORDER BY event_id, at
    ON CONFLICT (event_id) DO NOTHING
    RETURNING event_id, at
), stored AS (
    INSERT INTO probing.health_event (
        event_id, cluster, node, at, observed_at, kind, code, severity, device, pci_bus_id, gpu_uuid,
        pid, process, job_id, count, last_at, source, message, measured, threshold, unit, detail
    )
    SELECT
        event_id, cluster, node, at, observed_at, kind, code, severity, device, pci_bus_id, gpu_uuid,
        pid, process, job_id, count, last_at, source, message, measured, threshold, unit, detail
    FROM incoming JOIN fresh USING (event_id, at)
    ON CONFLICT DO NOTHING
    RETURNING cluster, node, at
), noted AS (
    INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
    SELECT cluster, node, min(at), max(at), count(*) FROM stored WHERE node <> '' GROUP BY cluster, node, date_trunc('hour', at)
)
SELECT count(*) AS accepted FROM fresh
