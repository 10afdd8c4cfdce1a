-- User-type Xids that a GPU showed before, with the attempts that ran on its node then.
-- Inputs   :cluster; :keys, :nodes, :untils, :uuids, :devices, :addresses  parallel arrays: number of the attempt, node, time of its
--          own Xid, and the names its GPU goes by (null = not known); :codes; :days.
-- Output   key, node, device, pci_bus_id, gpu_uuid, code, at, job_id, "user", held (UUIDs that attempt held there, null = unknown).
-- The attempts of a node are looked up once, however many Xids it showed.
WITH seen AS MATERIALIZED (
    SELECT w.key, e.node, e.device, e.pci_bus_id, e.gpu_uuid, e.code, e.at, count(*) OVER (PARTITION BY w.key) AS n
    FROM unnest(CAST(:keys AS int[]), CAST(:nodes AS text[]), CAST(:untils AS timestamptz[]), CAST(:uuids AS text[]),
                CAST(:devices AS text[]), CAST(:addresses AS text[])) AS w(key, node, until_at, uuid, device, address)
    JOIN probing.health_event e
      ON e.node = w.node
     AND e.at >= w.until_at - make_interval(days => :days)
     AND e.at < w.until_at
     AND (e.gpu_uuid = w.uuid OR e.device = w.device OR e.pci_bus_id = w.address)
    WHERE e.cluster = :cluster AND e.kind = 'xid' AND e.code = ANY(:codes)
), span AS (
    SELECT s.node, min(s.at) AS first_at, max(s.at) AS last_at FROM seen s WHERE s.n >= 2 GROUP BY s.node
), there AS MATERIALIZED (
    SELECT p.node, a.job_id, a."user", a.gpus -> p.node AS held, a.start_at, coalesce(a.end_at, 'infinity') AS end_at
    FROM span p
    JOIN probing.job_attempt a
      ON a.cluster = :cluster
     AND a.nodes @> ARRAY[p.node]
     AND a.start_at <= p.last_at
     AND (a.end_at IS NULL OR a.end_at >= p.first_at)
)
SELECT s.key, s.node, s.device, s.pci_bus_id, s.gpu_uuid, s.code, s.at, t.job_id, t."user", t.held
FROM seen s
JOIN there t ON t.node = s.node AND s.at BETWEEN t.start_at AND t.end_at
WHERE s.n >= 2
