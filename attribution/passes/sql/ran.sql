-- Who ran in a span, on whatever nodes: who took a preempted attempt's place, and who shared a node with whom; and before it on
-- some nodes, where something lasting was seen.
-- Inputs   $1 cluster; $2, $3 bounds of the span (timestamptz); $4 nodes, $5 from when on those.
-- Output   job_id, submit_at, attempt, start_at, end_at (null = still runs), priority, name, "user", nodes (of those before the span only the ones
--          asked for).
SELECT a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.priority, a.name, a."user", a.nodes
FROM probing.job_attempt a
WHERE a.cluster = $1
  AND a.start_at <= $3
  AND (a.end_at >= $2 OR a.end_at IS NULL)
UNION ALL
SELECT a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.priority, a.name, a."user",
       ARRAY(SELECT n FROM unnest(a.nodes) AS n WHERE n = ANY($4::text[]))
FROM probing.job_attempt a
WHERE a.cluster = $1
  AND a.start_at IS NOT NULL
  AND a.end_at >= $5 AND a.end_at < $2
  AND a.nodes && $4::text[]
