-- Jobs that have left a node with a fresh hard fault and wait for accounting, or for a verdict.
-- Inputs   :cluster; :fresh  oldest hard fault that counts; :released  the oldest report of an Epilog that counts;
--          :settled  what ended by then can be judged.
-- Output   job_id; unaccounted  accounting has no end of that start yet; settled  it has an end that can be judged.
WITH broken AS (
    SELECT DISTINCT e.node FROM probing.health_event e
    WHERE e.severity = 'high' AND e.at >= :fresh AND e.cluster = :cluster
), gone AS (
    -- By the server's clock: the node's may be off.
    SELECT DISTINCT l.job_id, least(l.at, l.received_at) AS at FROM broken b
    JOIN probing.job_allocation l ON l.node = b.node AND l.cluster = :cluster
    WHERE l.released_at IS NOT NULL AND l.updated_at >= :released
), states AS (
    SELECT g.job_id,
           bool_and(a.end_at IS NULL) AS unaccounted,
           coalesce(bool_or(a.end_at <= :settled AND a.judged_at IS NULL AND a.state <> 'COMPLETED'), false) AS settled
    FROM gone g
    LEFT JOIN probing.job_attempt a
      ON a.job_id = g.job_id AND a.cluster = :cluster AND a.start_at >= g.at - interval '1 minute'
    GROUP BY g.job_id, g.at
)
SELECT job_id, unaccounted, settled FROM states WHERE unaccounted OR settled
