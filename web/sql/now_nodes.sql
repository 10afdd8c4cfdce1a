-- Nodes with something to say: a fault, a drain, silence, a failing check, or a lemon's score.
SELECT
    n.cluster, n.node, n.state, n.age_s, n.faults, n.jobs, n.failing, n.drained, n.drain_reason, n.drained_at,
    n.lemon_score, n.lemon_verdict,
    CASE WHEN n.state = 'silent' THEN now() - make_interval(secs => n.age_s) END AS silent_since
FROM ops.node_now n
WHERE n.state <> 'ok' OR n.lemon_verdict IN ('lemon', 'suspect')
ORDER BY n.node
LIMIT 500
