-- Nodes by name, as they are now.
-- Inputs   cluster; state: as ops.node_now says it, or `not ok`; null for all; after: the last name of the page before; n.
SELECT
    n.cluster, n.node, n.state, n.age_s, n.n_faults, n.faults, n.jobs, n.failing, n.drained, n.drain_reason, n.drained_at,
    n.lemon_score, n.lemon_verdict
FROM ops.node_now n
WHERE n.cluster = %(cluster)s
  AND (%(state)s::text IS NULL OR n.state = %(state)s OR (%(state)s = 'not ok' AND n.state <> 'ok'))
  AND (%(node)s::text IS NULL OR n.node = %(node)s)
  AND (%(after)s::text IS NULL OR n.node > %(after)s)
ORDER BY n.node
LIMIT %(n)s
