-- High conditions that an agent's own readings saw begin, and when they saw them end.
-- Inputs   :cluster; :nodes; :since, :until  bounds of their beginning; :last  when whoever asks had ended: what went later, stood.
-- Output   every column of probing.health_event, and gone_at (null = still standing).
SELECT h.*, gone.gone_at
FROM probing.health_event h
LEFT JOIN LATERAL (
    SELECT min(r.at) AS gone_at
    FROM probing.health_event r
    WHERE r.node = h.node
      AND r.cluster = h.cluster
      AND r.at > h.at AND r.at <= :last
      AND (r.kind = 'node_boot'
           OR (r.kind = h.kind
               AND r.device IS NOT DISTINCT FROM h.device
               AND r.detail -> 'recovered' = CAST('true' AS jsonb)))
) gone ON true
WHERE h.severity = 'high'
  AND h.cluster = :cluster
  AND h.node = ANY(:nodes)
  AND h.at >= :since AND h.at < :until
  AND h.source IN ('nvml', 'amdsmi', 'sysfs', 'mount', 'check', 'service', 'ipmi')
