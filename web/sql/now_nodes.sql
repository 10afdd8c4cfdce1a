-- Nodes with something to say: a fault, a drain, silence, a failing check, or a lemon's score. First who they are, by tables that
-- hold little else; only then everything about each, which ops.node_now looks up node by node.
-- Inputs   cluster.
WITH candidates AS MATERIALIZED (
    SELECT h.cluster, h.node FROM ops.agent_health h WHERE h.cluster = :cluster AND (h.silent OR h.n_faults > 0)
    UNION
    SELECT c.cluster, c.node FROM probing.check_now c WHERE c.cluster = :cluster AND c.outcome IN ('fail', 'error')
    UNION
    SELECT d.cluster, d.node FROM probing.drain d WHERE d.cluster = :cluster AND d.action = 'drain' AND d.state = 'done' AND d.ended_at IS NULL
    UNION
    SELECT s.cluster, s.node FROM probing.slurm_drain s WHERE s.cluster = :cluster
    UNION
    SELECT l.cluster, l.node FROM ops.lemons l WHERE l.cluster = :cluster
)
SELECT
    n.cluster, n.node, n.state, n.age_s, n.faults, n.jobs, n.failing, n.drained, n.drain_reason, n.drained_at,
    n.lemon_score, n.lemon_verdict,
    CASE WHEN n.state = 'silent' THEN now() - make_interval(secs => n.age_s) END AS silent_since
FROM candidates x
JOIN ops.node_now n ON n.cluster = x.cluster AND n.node = x.node
WHERE n.state <> 'ok' OR n.lemon_verdict IN ('lemon', 'suspect')
-- The worst first, so that the limit leaves out the least.
ORDER BY array_position(ARRAY['faulty', 'silent', 'drained', 'failing checks', 'ok'], n.state), n.node
LIMIT 500
