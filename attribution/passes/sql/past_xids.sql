-- User-type Xids that a GPU showed before, with the attempts that ran on its node then.
-- Inputs   :cluster; :keys, :nodes, :untils, :uuids, :devices, :addresses  parallel arrays: number of the attempt, node, time of its
--          own Xid, and the names its GPU goes by (null = not known); :codes; :days.
-- Output   key, node, device, pci_bus_id, gpu_uuid, code, at, job_id, "user", held (UUIDs that attempt held there, null = unknown).
-- The attempts of a node are looked up once, however many Xids it showed, and each Xid is joined with those of its own day alone:
-- otherwise every Xid of a node is joined with every attempt of four weeks there.
WITH seen AS MATERIALIZED (
    SELECT w.key, e.node, e.device, e.pci_bus_id, e.gpu_uuid, e.code, e.at, floor(extract(epoch FROM e.at) / 86400)::int AS day,
           count(*) OVER (PARTITION BY w.key) AS n
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
    SELECT p.node, a.job_id, a."user", a.submit_at, a.start_at, coalesce(a.end_at, 'infinity') AS end_at,
           generate_series(floor(extract(epoch FROM greatest(a.start_at, p.first_at)) / 86400)::int,
                           floor(extract(epoch FROM least(a.end_at, p.last_at)) / 86400)::int) AS day
    FROM span p
    JOIN probing.job_attempt a
      ON a.cluster = :cluster
     AND a.nodes @> ARRAY[p.node]
     AND a.start_at <= p.last_at
     AND (a.end_at IS NULL OR a.end_at >= p.first_at)
)
SELECT s.key, s.node, s.device, s.pci_bus_id, s.gpu_uuid, s.code, s.at, t.job_id, t."user", a.gpus -> s.node AS held
FROM seen s
JOIN there t ON t.node = s.node AND t.day = s.day AND s.at BETWEEN t.start_at AND t.end_at
JOIN probing.job_attempt a ON a.cluster = :cluster AND a.job_id = t.job_id AND a.submit_at = t.submit_at
WHERE s.n >= 2
