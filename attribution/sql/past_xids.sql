-- User-type Xids on some nodes before, with the attempts that were on the node then.
-- Inputs   :cluster; :nodes; :since, :until; :codes.
-- Output   event_id, node, device, pci_bus_id, gpu_uuid, code, at, job_id, "user", held (UUIDs the attempt held there, null = unknown).
SELECT e.event_id, e.node, e.device, e.pci_bus_id, e.gpu_uuid, e.code, e.at, a.job_id, a."user",
       a.gpus -> e.node AS held
FROM probing.health_event e
JOIN probing.job_attempt a
  ON a.cluster = e.cluster
 AND a.nodes @> ARRAY[e.node]
 AND a.start_at <= e.at
 AND (a.end_at IS NULL OR a.end_at >= e.at)
WHERE e.cluster = :cluster
  AND e.kind = 'xid'
  AND e.code = ANY(:codes)
  AND e.node = ANY(:nodes)
  AND e.at >= :since AND e.at < :until
