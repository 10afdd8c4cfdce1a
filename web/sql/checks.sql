-- The latest result of every check on one node, failures first.
-- Inputs   cluster, node.
SELECT c.name, c.outcome, c.severity, c.message, c.device, c.measured, c.threshold, c.unit, c.at
FROM ops.check_now c
WHERE c.cluster = %(cluster)s AND c.node = %(node)s
ORDER BY c.outcome IN ('fail', 'error') DESC, c.outcome = 'warn' DESC, c.name
LIMIT 200
