-- Events in a span, cluster-wide, that a fault of a shared part can make: to see whether one fault struck many nodes at once.
-- Inputs   :cluster; :kinds, :codes  parallel arrays of sorts of events (code in lower case; null = any, ending in * = what begins
--          so); :since, :until.
-- Output   every column of probing.health_event.
SELECT e.*
FROM probing.health_event e
WHERE e.cluster = :cluster
  AND e.at BETWEEN :since AND :until
  AND e.source NOT IN ('joblog', 'probe', 'dump')
  AND EXISTS (SELECT 1 FROM unnest(CAST(:kinds AS text[]), CAST(:codes AS text[])) AS s(kind, code)
              WHERE s.kind = e.kind
                AND (s.code IS NULL OR s.code = lower(coalesce(e.code, ''))
                     OR (s.code LIKE '%*' AND starts_with(lower(e.code), left(s.code, -1)))))
ORDER BY e.at, e.event_id
