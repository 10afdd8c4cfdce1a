-- Nodes whose name begins so, and nodes with a GPU of this UUID.
-- Inputs   prefix: LIKE pattern; word.
(SELECT h.node AS name, 'node' AS kind, '' AS words FROM probing.agent_heartbeat h WHERE h.node LIKE %(prefix)s ORDER BY 1 LIMIT 10)
UNION ALL
(SELECT DISTINCT e.node, 'gpu', e.gpu_uuid || coalesce(' ' || e.device, '')
 FROM probing.health_event e
 WHERE e.gpu_uuid = %(word)s AND e.at >= now() - interval '400 days' LIMIT 10)
