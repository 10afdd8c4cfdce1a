-- When each node was in use by jobs: stretches that do not overlap, so that eight jobs at once count once.
-- Inputs   view place (places.sql).
-- Output   node, start_us, end_us.
SELECT node, start_us, end_us
FROM (
    SELECT q.node, q.end_us, greatest(q.start_us, coalesce(max(q.end_us) OVER (
               PARTITION BY q.node ORDER BY q.start_us, q.end_us ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), q.start_us)) AS start_us
    FROM place q
) p
WHERE end_us > start_us
