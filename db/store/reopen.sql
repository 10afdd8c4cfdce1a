-- Hold newly arrived events against the verdicts already given; those that they may be evidence for are to be judged again.
-- Inputs   :arrivals  the deliveries to take, their arrival_id.
-- Output   one row: n_reopened (attempts re-opened).
-- The delivery's span stands for its events: a verdict judged again for nothing comes out the same and is not stored.
-- What stood for up to a week before a window, went on into it, or showed on the same GPU before is evidence, too: of events
-- that came in time this concerns nobody, since what ended after them was judged after them.
-- By time first, then node by node: all deliveries with all verdicts would grow with the square of the cluster.
-- Where no agent beats, a node's last line is its sign of life: a later one says that it lived all the time before.
WITH taken AS (
    DELETE FROM probing.arrival
    WHERE arrival_id IN (SELECT arrival_id FROM probing.arrival
                         WHERE arrival_id = ANY(CAST(:arrivals AS bigint[]))
                         ORDER BY arrival_id
                         FOR UPDATE SKIP LOCKED)
    RETURNING cluster, node, first_at, last_at
), alive AS MATERIALIZED (
    SELECT t.cluster, t.node, t.last_at,
           CASE WHEN EXISTS (SELECT FROM probing.agent_heartbeat b WHERE b.cluster = t.cluster AND b.node = t.node)
                THEN t.first_at
                ELSE coalesce((SELECT e.at
                               FROM probing.health_event e
                               WHERE e.cluster = t.cluster AND e.node = t.node AND e.at < t.first_at
                                 AND e.source IN ('import', 'kernel')
                               ORDER BY e.at DESC
                               LIMIT 1), '-infinity')
           END AS first_at
    FROM taken t
), near AS MATERIALIZED (
    SELECT a.cluster, a.job_id, a.submit_at, a.end_at, n.node
    FROM probing.job_attempt a
    CROSS JOIN LATERAL unnest(a.nodes) AS n(node)
    WHERE a.end_at >= (SELECT min(first_at) FROM alive) - interval '1 day'
      AND a.end_at <= (SELECT max(last_at) FROM alive) + interval '8 days'
      AND a.judged_at IS NOT NULL
      AND n.node IN (SELECT node FROM alive)
), hit AS (
    SELECT DISTINCT a.cluster, a.job_id, a.submit_at
    FROM alive t
    JOIN near a
      ON a.node = t.node
     AND a.cluster = t.cluster
     AND a.end_at BETWEEN t.first_at - interval '1 day' AND t.last_at + interval '8 days'
    JOIN probing.verdict v
      ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
    WHERE coalesce(v.window_start_at, a.end_at - interval '10 minutes') - interval '7 days' <= t.last_at
      AND coalesce(v.window_end_at, a.end_at + interval '5 minutes') >= t.first_at
), reopened AS (
    UPDATE probing.job_attempt a SET judged_at = NULL
    FROM hit h
    WHERE a.cluster = h.cluster AND a.job_id = h.job_id AND a.submit_at = h.submit_at
    RETURNING 1
)
SELECT count(*) AS n_reopened FROM reopened
