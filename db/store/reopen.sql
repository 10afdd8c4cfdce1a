-- Hold newly arrived events against the verdicts already given; those that they may be evidence for are to be judged again.
-- Inputs   :arrivals  the deliveries to take, their arrival_id.
-- Output   one row: n_reopened (attempts re-opened).
-- The delivery's span stands for its events: a verdict judged again for nothing comes out the same and is not stored.
-- What stood for up to a week before a window, went on into it, or showed on the same GPU before is evidence, too: of events
-- that came in time this concerns nobody, since what ended after them was judged after them.
-- By time first, then node by node: all deliveries with all verdicts would grow with the square of the cluster. A few nodes that were away
-- for more than a week, mostly for months, are each looked up by their name: reading all that ended meanwhile takes seconds.
-- OFFSET 0: by the one index that is meant. IS TRUE: nodes are looked up in a hash; a join might compare each attempt with each delivery.
-- Where no agent beats, a node's last line is its sign of life: a later line says that it lived since the one before; its first line ever,
-- that it lived for a day, as watched.sql joins the files of a log. What is no line (a start, a drain, a test of the node) says neither.
-- A node that Slurm gave up, and on which no agent beats, may show within an hour that it restarted (attribution's BOOTS_WITHIN).
-- A delivery of one job's output concerns that attempt alone.
-- Where events that a verdict might rest on are older than the oldest month kept, it stays if any of its evidence has been dropped.
WITH taken AS (
    DELETE FROM probing.arrival
    WHERE arrival_id = ANY(ARRAY(SELECT arrival_id FROM probing.arrival
                                 WHERE arrival_id = ANY(CAST(:arrivals AS bigint[]))
                                 ORDER BY arrival_id
                                 FOR UPDATE SKIP LOCKED))
    RETURNING cluster, node, first_at, last_at, job_id
), evidence_span AS MATERIALIZED (
    SELECT t.cluster, t.node, t.last_at, b.node IS NOT NULL AS beats,
           CASE WHEN b.node IS NOT NULL
                THEN t.first_at
                WHEN EXISTS (SELECT FROM probing.health_event e
                             WHERE e.cluster = t.cluster AND e.node = t.node AND e.at BETWEEN t.first_at AND t.last_at
                               AND e.source IN ('import', 'kernel'))
                THEN coalesce((SELECT e.at
                               FROM probing.health_event e
                               WHERE e.cluster = t.cluster AND e.node = t.node AND e.at < t.first_at
                                 AND e.source IN ('import', 'kernel')
                               ORDER BY e.at DESC
                               LIMIT 1), t.first_at - interval '1 day')
                ELSE t.first_at
           END AS first_at
    FROM taken t
    LEFT JOIN probing.agent_heartbeat b ON b.cluster = t.cluster AND b.node = t.node
    WHERE t.job_id IS NULL
), away AS MATERIALIZED (
    SELECT cluster, node, min(first_at) - interval '1 day' AS since, max(last_at) + interval '8 days' AS until, count(*) OVER () <= 20 AS few
    FROM evidence_span
    WHERE last_at - first_at > interval '7 days'
    GROUP BY cluster, node
), judged_attempts_nearby AS MATERIALIZED (
    SELECT a.cluster, a.job_id, a.submit_at, a.end_at, a.state, n.node
    FROM (SELECT cluster, unnest(range_agg(tstzrange(first_at - interval '1 day', last_at + interval '8 days', '[]'))) AS near
          FROM evidence_span
          WHERE (cluster, node) NOT IN (SELECT cluster, node FROM away WHERE few)
          GROUP BY cluster) AS together
    CROSS JOIN LATERAL (
        SELECT j.*
        FROM probing.job_attempt j
        WHERE j.end_at BETWEEN lower(together.near) AND upper(together.near) AND j.judged_at IS NOT NULL AND j.cluster = together.cluster
        OFFSET 0
    ) AS a
    CROSS JOIN LATERAL unnest(a.nodes) AS n(node)
    WHERE ((a.cluster, n.node) IN (SELECT cluster, node FROM evidence_span)) IS TRUE
    UNION ALL
    SELECT a.cluster, a.job_id, a.submit_at, a.end_at, a.state, away.node
    FROM away
    CROSS JOIN LATERAL (SELECT j.* FROM probing.job_attempt j WHERE j.nodes @> ARRAY[away.node] AND j.cluster = away.cluster OFFSET 0) AS a
    WHERE away.few AND a.end_at BETWEEN away.since AND away.until AND a.judged_at IS NOT NULL
), kept AS (
    SELECT coalesce(to_date(right(min(c.relname), 7), 'YYYY_MM')::timestamp AT TIME ZONE 'UTC', '-infinity') AS since
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'probing.health_event'::regclass AND c.relname ~ '^health_event_[0-9]{4}_[0-9]{2}$'
), concerned AS (
    SELECT a.cluster, a.job_id, a.submit_at, a.end_at, v.window_start_at, v.evidence
    FROM evidence_span t
    JOIN judged_attempts_nearby a
      ON a.node = t.node
     AND a.cluster = t.cluster
     AND a.end_at BETWEEN t.first_at - interval '1 day' AND t.last_at + interval '8 days'
    JOIN probing.verdict v
      ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
    WHERE coalesce(v.window_start_at, a.end_at - interval '10 minutes') - interval '7 days' <= t.last_at
      AND greatest(coalesce(v.window_end_at, a.end_at + interval '5 minutes'),
                   CASE WHEN a.state IN ('NODE_FAIL', 'BOOT_FAIL') AND NOT t.beats THEN a.end_at + interval '1 hour' END) >= t.first_at
    UNION ALL
    SELECT a.cluster, a.job_id, a.submit_at, a.end_at, v.window_start_at, v.evidence
    FROM taken t
    JOIN probing.job_attempt a
      ON a.cluster = t.cluster AND a.job_id = t.job_id AND a.end_at = t.last_at AND a.judged_at IS NOT NULL
    LEFT JOIN probing.verdict v
      ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
), hit AS (
    SELECT DISTINCT c.cluster, c.job_id, c.submit_at
    FROM concerned c
    WHERE coalesce(c.window_start_at, c.end_at - interval '10 minutes') - interval '7 days' >= (SELECT since FROM kept)
       OR NOT EXISTS (SELECT FROM unnest(c.evidence) AS g(event_id)
                      WHERE NOT EXISTS (SELECT FROM probing.event_key k
                                        JOIN probing.health_event e ON e.at = k.at AND e.event_id = k.event_id AND e.cluster = c.cluster
                                        WHERE k.event_id = g.event_id))
), reopened AS (
    UPDATE probing.job_attempt a SET judged_at = NULL
    FROM hit h
    WHERE a.cluster = h.cluster AND a.job_id = h.job_id AND a.submit_at = h.submit_at
    RETURNING 1
)
SELECT count(*) AS n_reopened FROM reopened
