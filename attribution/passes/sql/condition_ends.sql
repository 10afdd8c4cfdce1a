-- When conditions were seen to end.
-- Inputs   :cluster; :numbers, :nodes, :ats, :kinds, :devices, :uuids, :addresses, :lasts  parallel arrays, one entry per condition as
--          active_faults.sql gives it; :lasting_kinds  the kinds of faults that last until a reset; :last  what ended later was active.
-- Output   n (the condition's number), gone_at (null = still active).
-- A condition's node is read from its beginning on: ask only about those that may matter.
SELECT c.n, gone.gone_at
FROM unnest(CAST(:numbers AS int[]), CAST(:nodes AS text[]), CAST(:ats AS timestamptz[]), CAST(:kinds AS text[]), CAST(:devices AS text[]),
            CAST(:uuids AS text[]), CAST(:addresses AS text[]), CAST(:lasts AS int[]))
     AS c(n, node, at, kind, device, gpu_uuid, pci_bus_id, lasts)
CROSS JOIN LATERAL (
    SELECT min(r.at) AS gone_at
    FROM probing.health_event r
    WHERE r.node = c.node
      AND r.cluster = :cluster
      AND r.at > c.at AND r.at <= :last
      AND (r.kind = 'node_boot'
           OR (c.lasts = 1 AND r.kind = 'driver_load')
           OR (r.detail -> 'recovered' = CAST('true' AS jsonb)
               AND ((r.kind = c.kind AND r.device IS NOT DISTINCT FROM c.device)
                    OR (c.lasts = 1 AND r.kind = ANY(CAST(:lasting_kinds AS text[]))
                        AND (r.device = c.device OR r.gpu_uuid = c.gpu_uuid OR r.pci_bus_id = c.pci_bus_id)))))
) gone
