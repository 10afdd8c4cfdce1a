-- When conditions were seen to end.
-- Inputs   :cluster; :numbers, :nodes, :ats, :kinds, :devices, :uuids, :addresses, :lasts  parallel arrays, one entry per condition as
--          active_faults.sql gives it; :lasting_kinds  the kinds of faults that last until a reset; :last  a condition that ended later was active.
-- Output   n (the condition's number), gone_at (null = still active).
-- A condition's node is read from its beginning on, so pass only conditions that may matter. OFFSET 0: each node is looked up by itself, and
-- once, however many conditions it has. The index health_event_ends holds what can end any: its condition is the one on r below.
WITH c AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:numbers AS int[]), CAST(:nodes AS text[]), CAST(:ats AS timestamptz[]), CAST(:kinds AS text[]),
                         CAST(:devices AS text[]), CAST(:uuids AS text[]), CAST(:addresses AS text[]), CAST(:lasts AS int[]))
                  AS c(n, node, at, kind, device, gpu_uuid, pci_bus_id, lasts)
), ends AS MATERIALIZED (
    SELECT e.*
    FROM (SELECT node, min(at) AS first_at FROM c GROUP BY node) f
    CROSS JOIN LATERAL (
        SELECT r.node, r.at, r.kind, r.device, r.gpu_uuid, r.pci_bus_id,
               coalesce(r.detail -> 'recovered' = CAST('true' AS jsonb), false) AS recovered
        FROM probing.health_event r
        WHERE r.node = f.node
          AND r.cluster = :cluster
          AND r.at > f.first_at AND r.at <= :last
          AND (r.kind IN ('node_boot', 'driver_load')
               OR (r.kind = ANY(CAST(:kinds AS text[]) || CAST(:lasting_kinds AS text[])) AND r.detail -> 'recovered' = CAST('true' AS jsonb)))
        OFFSET 0
    ) e
)
SELECT c.n, min(r.at) AS gone_at
FROM c
LEFT JOIN ends r
  ON r.node = c.node
 AND r.at > c.at
 AND (r.kind = 'node_boot'
      OR (c.lasts = 1 AND r.kind = 'driver_load')
      OR (r.recovered
          AND ((r.kind = c.kind AND r.device IS NOT DISTINCT FROM c.device)
               OR (c.lasts = 1 AND r.kind = ANY(CAST(:lasting_kinds AS text[]))
                   AND (r.device = c.device OR r.gpu_uuid = c.gpu_uuid OR r.pci_bus_id = c.pci_bus_id)))))
GROUP BY c.n
