-- Every event of some kinds in a span, cluster-wide, to see whether one fault struck many nodes at once.
-- Inputs   :cluster; :kinds; :since, :until.
-- Output   every column of probing.health_event.
SELECT e.*
FROM probing.health_event e
WHERE e.cluster = :cluster
  AND e.kind = ANY(:kinds)
  AND e.at BETWEEN :since AND :until
  AND e.source NOT IN ('joblog', 'probe', 'dump')
ORDER BY e.at, e.event_id
