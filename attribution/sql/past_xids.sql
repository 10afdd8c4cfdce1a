-- User-type Xids that GPUs showed before, with the attempts that ran on the node then.
-- Inputs   :cluster; :keys, :nodes, :untils  parallel arrays: number of the attempt, node, time of its own Xid; :codes; :days.
-- Output   key, node, device, pci_bus_id, gpu_uuid, code, at, job_id, "user", held (UUIDs that attempt held there, null = unknown).
WITH seen AS (
    SELECT w.key, e.node, e.device, e.pci_bus_id, e.gpu_uuid, e.code, e.at
    FROM unnest(CAST(:keys AS int[]), CAST(:nodes AS text[]), CAST(:untils AS timestamptz[])) AS w(key, node, until_at)
    JOIN probing.health_event e
      ON e.node = w.node
     AND e.at >= w.until_at - make_interval(days => :days)
     AND e.at < w.until_at
    WHERE e.cluster = :cluster AND e.kind = 'xid' AND e.code = ANY(:codes)
), often AS (
    SELECT *, count(*) OVER (PARTITION BY key, coalesce(gpu_uuid, device, pci_bus_id)) AS n FROM seen
)
SELECT o.key, o.node, o.device, o.pci_bus_id, o.gpu_uuid, o.code, o.at, a.job_id, a."user", a.gpus -> o.node AS held
FROM often o
JOIN probing.job_attempt a
  ON a.cluster = :cluster
 AND a.nodes @> ARRAY[o.node]
 AND a.start_at <= o.at
 AND (a.end_at IS NULL OR a.end_at >= o.at)
WHERE o.n >= 2
