-- Nodes whose name begins so, and nodes where a GPU of this UUID or serial number was named by a fault or held by a job.
-- Inputs   prefix: LIKE pattern; word.
(SELECT h.node AS name, 'node' AS kind, '' AS words FROM probing.agent_heartbeat h WHERE h.node LIKE %(prefix)s ORDER BY 1 LIMIT 10)
UNION ALL
(SELECT g.node, 'gpu', concat_ws(' ', g.gpu_uuid, g.device, 'last named ' || to_char(g.at, 'YYYY-MM-DD HH24:MI') || 'Z')
 FROM (
     SELECT DISTINCT ON (e.node, e.gpu_uuid) e.node, e.gpu_uuid, e.device, e.at
     FROM probing.health_event e
     -- By the index of grave events: a serial number stands in no index of its own.
     WHERE e.severity = 'high' AND e.at >= now() - interval '400 days' AND length(%(word)s) >= 6
       AND (e.gpu_uuid = %(word)s OR e.detail ->> 'serial' = %(word)s OR strpos(e.message, 'serial ' || %(word)s) > 0)
     ORDER BY e.node, e.gpu_uuid, e.at DESC
 ) g
 LIMIT 10)
UNION ALL
(SELECT a.node, 'gpu', concat_ws(' ', %(word)s, 'held by job', max(a.job_id))
 FROM probing.job_allocation a
 WHERE %(word)s LIKE 'GPU-%%' AND a.gpu_uuids @> ARRAY[%(word)s]
 GROUP BY a.node LIMIT 10)
