-- Attempts that ran in a span on any node (preemptors and co-residents), and before it on some nodes with a lasting fault.
-- Inputs   $1 cluster; $2, $3 bounds of the span (timestamptz); $4, $5 parallel arrays: nodes, and the instant from which on they are needed
--          (microseconds since 1970); $6 the earliest of these instants (timestamptz).
-- Output   job_id, submit_at, attempt, start_at, end_at (null = still runs), priority, name, "user", nodes (of those before the span only the ones
--          asked for).
-- Nodes are joined by hash: an overlap of two arrays compares each with each, which is quadratic in the nodes of a cluster.
SELECT a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.priority, a.name, a."user", a.nodes
FROM probing.job_attempt a
WHERE a.cluster = $1
  AND a.start_at <= $3
  AND (a.end_at >= $2 OR a.end_at IS NULL)
UNION ALL
SELECT p.job_id, p.submit_at, p.attempt, p.start_at, p.end_at, p.priority, p.name, p."user", array_agg(p.node)
FROM (
    SELECT a.job_id, a.submit_at, a.attempt, a.start_at, a.end_at, a.priority, a.name, a."user", unnest(a.nodes) AS node
    FROM probing.job_attempt a
    WHERE a.cluster = $1
      AND a.start_at IS NOT NULL
      AND a.end_at >= $6 AND a.end_at < $2
) p
JOIN (
    SELECT w.node, CAST('epoch' AS timestamptz) + w.from_us * interval '1 microsecond' AS from_at
    FROM unnest($4::text[], $5::bigint[]) AS w(node, from_us)
) wanted ON wanted.node = p.node AND p.end_at >= wanted.from_at
GROUP BY p.job_id, p.submit_at, p.attempt, p.start_at, p.end_at, p.priority, p.name, p."user"
