-- Severe conditions that began in a span: those that an agent's own readings saw begin, and faults that only a reset, a reloaded driver
-- or a restart ends, from any source. condition_ends.sql finds their ends.
-- Inputs   :cluster; :nodes; :since, :until  bounds of their beginning; :lasting_kinds, :lasting_codes  parallel arrays, the sorts of
--          faults that last until a reset (code: lower case, null = any, "x*" = every code that begins with x).
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
  -- An Xid is an instant, not a state: the GPU's check shows the state after it, and its end.
  AND ((h.source IN ('nvml', 'amdsmi', 'sysfs', 'mount', 'check', 'service', 'ipmi') AND (s.lasts OR h.kind <> 'xid'))
       -- No line reports the reset of a switch; on a node with an agent its checks do.
       OR (s.lasts AND (h.source = 'import' OR (h.source = 'kernel' AND h.kind <> 'sxid'))))
