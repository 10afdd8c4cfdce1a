-- High conditions that began in a span: those that an agent's own readings saw begin, and faults that only a reset, a reloaded driver or a
-- restart ends, whoever saw them. When they were seen to end, condition_ends.sql tells.
-- Inputs   :cluster; :nodes; :since, :until  bounds of their beginning; :lasting_kinds, :lasting_codes  parallel arrays, the sorts of
--          faults that last until a reset (code: lower case, null = any, "x*" = whatever begins with x).
-- Output   every column of probing.health_event, and lasts (true = of such a sort).
WITH lasting AS (
    SELECT * FROM unnest(CAST(:lasting_kinds AS text[]), CAST(:lasting_codes AS text[])) AS k(kind, code)
)
SELECT h.*, s.lasts
FROM probing.health_event h
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM lasting k
                   WHERE k.kind = h.kind
                     AND (k.code IS NULL OR lower(coalesce(h.code, '')) = k.code
                          OR (right(k.code, 1) = '*' AND starts_with(lower(h.code), left(k.code, -1))))) AS lasts
) s
WHERE h.severity = 'high'
  AND h.cluster = :cluster
  AND h.node = ANY(:nodes)
  AND h.at >= :since AND h.at < :until
  -- An Xid is an instant, not a state, whoever tells of it: what stands after one, the check of the GPU tells, and when it ended.
  AND ((h.source IN ('nvml', 'amdsmi', 'sysfs', 'mount', 'check', 'service', 'ipmi') AND (s.lasts OR h.kind <> 'xid'))
       -- That a switch was reset no line tells; of a node with an agent its checks do.
       OR (s.lasts AND (h.source = 'import' OR (h.source = 'kernel' AND h.kind <> 'sxid'))))
