-- Who ran in a span, on whatever nodes: who took a preempted attempt's place, and who shared a node with whom.
-- Inputs   $1 cluster; $2, $3 bounds of the span (timestamptz).
-- Output   job_id, submit_at, attempt, start_at, end_at (null = still runs), priority, name, "user", nodes.
SELECT a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.priority, a.name, a."user", a.nodes
FROM probing.job_attempt a
WHERE a.cluster = $1
  AND a.start_at <= $3
  AND (a.end_at >= $2 OR a.end_at IS NULL)
