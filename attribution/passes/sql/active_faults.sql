-- High conditions that began in a span, and when they were seen to end: those that an agent's own readings saw begin, and faults
-- that only a reset, a reloaded driver or a restart ends, whoever saw them.
-- Inputs   :cluster; :nodes; :since, :until  bounds of their beginning; :last  when whoever asks had ended: what ended later was
--          active; :lasting_kinds, :lasting_codes  parallel arrays, the sorts of faults that last until a reset (code: lower case,
--          null = any, "x*" = whatever begins with x).
-- Output   every column of probing.health_event, and gone_at (null = still active).
WITH lasting AS (
    SELECT * FROM unnest(CAST(:lasting_kinds AS text[]), CAST(:lasting_codes AS text[])) AS k(kind, code)
)
SELECT h.*, gone.gone_at
FROM probing.health_event h
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM lasting k
                   WHERE k.kind = h.kind
                     AND (k.code IS NULL OR lower(coalesce(h.code, '')) = k.code
                          OR (right(k.code, 1) = '*' AND starts_with(lower(h.code), left(k.code, -1))))) AS lasts
) s
LEFT JOIN LATERAL (
    SELECT min(r.at) AS gone_at
    FROM probing.health_event r
    WHERE r.node = h.node
      AND r.cluster = h.cluster
      AND r.at > h.at AND r.at <= :last
      AND (r.kind = 'node_boot'
           OR (s.lasts AND r.kind = 'driver_load')
           OR (r.detail -> 'recovered' = CAST('true' AS jsonb)
               AND ((r.kind = h.kind AND r.device IS NOT DISTINCT FROM h.device)
                    OR (s.lasts AND r.kind IN (SELECT kind FROM lasting)
                        AND (r.device = h.device OR r.gpu_uuid = h.gpu_uuid OR r.pci_bus_id = h.pci_bus_id)))))
) gone ON true
WHERE h.severity = 'high'
  AND h.cluster = :cluster
  AND h.node = ANY(:nodes)
  AND h.at >= :since AND h.at < :until
  AND (h.source IN ('nvml', 'amdsmi', 'sysfs', 'mount', 'check', 'service', 'ipmi')
       OR (s.lasts AND h.source IN ('kernel', 'import')))
