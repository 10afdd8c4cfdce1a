-- Nodes whose name begins so, and nodes where a GPU of this UUID or serial number was named by a fault or held by a job:
-- by a fault only where no node's name begins so, since that reads every grave event.
-- Inputs   prefix: LIKE pattern; word.
(SELECT h.cluster, h.node AS name, 'node' AS kind, '' AS words FROM probing.agent_heartbeat h WHERE h.node LIKE %(prefix)s ORDER BY 2, 1 LIMIT 10)
UNION ALL
(SELECT g.cluster, g.node, 'gpu', concat_ws(' ', g.gpu_uuid, g.device, 'last named ' || to_char(g.at, 'YYYY-MM-DD HH24:MI') || 'Z')
 FROM (
     SELECT DISTINCT ON (e.cluster, e.node, e.gpu_uuid) e.cluster, e.node, e.gpu_uuid, e.device, e.at
     FROM (
         -- By the index of grave events, and not in the order of nodes (OFFSET 0): a serial number stands in no index of its own.
         SELECT x.cluster, x.node, x.gpu_uuid, x.device, x.at
         FROM probing.health_event x
         WHERE x.severity = 'high' AND x.at >= now() - interval '400 days' AND length(%(word)s) >= 6
           AND NOT EXISTS (SELECT FROM probing.agent_heartbeat h WHERE h.node LIKE %(prefix)s)
           AND (x.gpu_uuid = %(word)s OR x.detail ->> 'serial' = %(word)s OR strpos(x.message, 'serial ' || %(word)s) > 0)
         OFFSET 0
     ) e
     ORDER BY e.cluster, e.node, e.gpu_uuid, e.at DESC
 ) g
 LIMIT 10)
UNION ALL
(SELECT a.cluster, a.node, 'gpu', concat_ws(' ', %(word)s, 'held by job', max(a.job_id))
 FROM probing.job_allocation a
 WHERE %(word)s LIKE 'GPU-%%' AND a.gpu_uuids @> ARRAY[%(word)s]
 GROUP BY a.cluster, a.node LIMIT 10)
