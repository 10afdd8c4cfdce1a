-- Attempts that died, those alike (an array's tasks) in one row, 40 rows of each owner and account at most, hardware's first; and attempts that run and stand still or are slow.
-- Inputs   cluster.
-- Output   kind (died, stalled, slow), one row an attempt and kind, the latest of those alike; n_alike: further ones; n_left_out: deaths of the same owner and account beyond the 40 rows, in their first, and n_own_left_out: those of them by their own programs; returned_at: when after the end the node at fault first came back from a repair with every test passed, or (by_hand) a person noted it as repaired; not from before a later repair began for that part.
WITH died AS (
    SELECT f.cluster, f.job_id, f.attempt, f.user_name, f.account, f.domain, f.end_at,
           row_number() OVER alike AS nth, count(*) OVER (alike ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS n_same
    FROM ops.failures_24h f
    WHERE f.cluster = :cluster
    WINDOW alike AS (PARTITION BY f.user_name, f.account, f.name, f.state, f.cause, f.component, f.node, f.device,
                     CASE WHEN f.cause IS NULL THEN (f.job_id, f.attempt)::text END ORDER BY f.end_at DESC)
), story AS (
    SELECT d.*, row_number() OVER (PARTITION BY d.user_name, d.account ORDER BY
               CASE d.domain WHEN 'hardware' THEN 0 WHEN 'system_software' THEN 1 WHEN 'user_program' THEN 3 ELSE 2 END, d.end_at DESC) AS nth_story
    FROM died d
    WHERE d.nth = 1
), listed AS (
    SELECT s.*, coalesce(sum(s.n_same) FILTER (WHERE s.nth_story > 40) OVER (PARTITION BY s.user_name, s.account), 0)::bigint AS n_left_out,
           coalesce(sum(s.n_same) FILTER (WHERE s.nth_story > 40 AND s.domain = 'user_program') OVER (PARTITION BY s.user_name, s.account), 0)::bigint AS n_own_left_out
    FROM story s
)
(SELECT 'died' AS kind, f.cluster, f.job_id, f.ref, f.attempt, f.user_name AS user, f.account, f.partition, f.name, f.state,
        f.end_at AS at, f.n_nodes, f.n_gpus, f.cause, f.domain, f.component, f.node, f.device, f.confidence, f.summary, f.next_step, f.place,
        w.at AS returned_at, coalesce(w.by_hand, false) AS by_hand, s.n_same - 1 AS n_alike, CASE WHEN s.nth_story = 1 THEN s.n_left_out ELSE 0 END AS n_left_out,
        CASE WHEN s.nth_story = 1 THEN s.n_own_left_out ELSE 0 END AS n_own_left_out
 FROM listed s
 JOIN ops.attempt_verdicts f ON f.cluster = s.cluster AND f.job_id = s.job_id AND f.attempt = s.attempt
 LEFT JOIN LATERAL probing.back_from_repair(f.cluster, f.node, f.device, f.end_at) w ON true
 WHERE s.nth_story <= 40
 ORDER BY s.nth_story
 LIMIT 20000)
UNION ALL
(SELECT 'stalled', a.cluster, a.job_id, probing.job_ref(a), a.attempt, a."user", a.account, a.partition, a.name, a.state,
        g.onset_at, cardinality(a.nodes), a.n_gpus, g.kind, g.domain, NULL, g.nodes[1], NULL, g.confidence, g.summary,
        'Look at its ranks and stacks on the job''s page; its owner decides whether to end it.', NULL, NULL, false, 0, 0, 0
 FROM probing.gang_verdict g
 JOIN probing.job_attempt a ON a.cluster = g.cluster AND a.job_id = g.job_id AND a.submit_at = g.submit_at
 WHERE g.cluster = :cluster AND g.ended_at IS NULL AND g.kind <> 'unknown' AND a.end_at IS NULL AND g.made_at > now() - interval '7 days'
 ORDER BY g.made_at DESC
 LIMIT 200)
UNION ALL
(SELECT 'slow', s.cluster, s.job_id, s.ref, s.attempt, s."user", s.account, s.partition, s.name, s.state, s.at, cardinality(s.nodes), s.n_gpus,
        s.event_kind, NULL, NULL, s.node, s.device, NULL, s.message,
        'Compare its ranks on the job''s page: one that is slow by itself holds up all others.', NULL, NULL, false, 0, 0, 0
 FROM (
     SELECT DISTINCT ON (a.cluster, a.job_id) a.*, probing.job_ref(a) AS ref, e.at, e.kind AS event_kind, e.node, e.device, e.message
     FROM probing.health_event e
     JOIN probing.job_attempt a ON a.job_id = e.job_id AND a.cluster = e.cluster AND a.end_at IS NULL AND a.nodes @> ARRAY[e.node]
     WHERE e.cluster = :cluster AND e.at >= now() - interval '1 hour' AND e.source = 'probe' AND e.kind IN ('rank_slow', 'gang_drift')
     ORDER BY a.cluster, a.job_id, e.at DESC
 ) s
 LIMIT 200)
