-- User-type Xids that a GPU showed before, with the attempts that ran on its node then.
-- Inputs   :cluster; :keys, :nodes, :untils, :uuids, :devices, :addresses  parallel arrays: number of the attempt, node, time of its
--          own Xid, and the names its GPU goes by (null = not known); :codes; :days.
-- Output   key, node, device, pci_bus_id, gpu_uuid, code, at, job_id, "user", held (UUIDs that attempt held there, null = unknown).
WITH seen AS (
    SELECT w.key, e.node, e.device, e.pci_bus_id, e.gpu_uuid, e.code, e.at, count(*) OVER (PARTITION BY w.key) AS n
    FROM unnest(CAST(:keys AS int[]), CAST(:nodes AS text[]), CAST(:untils AS timestamptz[]), CAST(:uuids AS text[]),
                CAST(:devices AS text[]), CAST(:addresses AS text[])) AS w(key, node, until_at, uuid, device, address)
    JOIN probing.health_event e
      ON e.node = w.node
     AND e.at >= w.until_at - make_interval(days => :days)
     AND e.at < w.until_at
     AND (e.gpu_uuid = w.uuid OR e.device = w.device OR e.pci_bus_id = w.address)
    WHERE e.cluster = :cluster AND e.kind = 'xid' AND e.code = ANY(:codes)
)
SELECT s.key, s.node, s.device, s.pci_bus_id, s.gpu_uuid, s.code, s.at, a.job_id, a."user", a.gpus -> s.node AS held
FROM seen s
JOIN probing.job_attempt a
  ON a.cluster = :cluster
 AND a.nodes @> ARRAY[s.node]
 AND a.start_at <= s.at
 AND (a.end_at IS NULL OR a.end_at >= s.at)
WHERE s.n >= 2
