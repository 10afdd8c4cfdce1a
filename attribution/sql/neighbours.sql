-- Who ran in a span, on whatever nodes: to see whether a part was shared and who took a preempted attempt's place.
-- Inputs   :cluster; :since, :until.
-- Output   job_id, submit_at, attempt, start_at, end_at (null = still runs), priority, nodes.
SELECT a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.priority, a.nodes
FROM probing.job_attempt a
WHERE a.cluster = :cluster
  AND a.start_at <= :until
  AND (a.end_at >= :since OR a.end_at IS NULL)
