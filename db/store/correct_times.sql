-- Give the events of nodes whose clocks were off the times of the server's clock. Each event is corrected once; its key keeps by how much.
-- Inputs   :cluster; :nodes, :froms, :tos, :aheads  parallel arrays: a node, from when to when its heartbeats showed it by the server's clock,
--          and how far its clock was ahead, seconds; :since  events that were stored before need no look.
-- Output   one row: n_corrected (events).
-- A clock may be wrong for 15 seconds before a heartbeat shows it, or be right again for 15 before one shows that: an event that was stored
-- then has the wrong time only if the corrected one is nearer to when it was stored. An agent stores most events within seconds.
-- What waited in a spool for more than a day keeps its time. OFFSET 0: each node is looked up by itself, by its index.
-- The key's received_at moves, too: whoever has read an event with its old time sees by it that there is something new.
WITH span AS MATERIALIZED (
    SELECT s.node, s.from_at, s.to_at, s.ahead_s, make_interval(secs => s.ahead_s) AS ahead,
           greatest(s.from_at - interval '15 seconds', CAST(:since AS timestamptz)) AS since_at, s.to_at + interval '15 seconds' AS until_at
    FROM unnest(CAST(:nodes AS text[]), CAST(:froms AS timestamptz[]), CAST(:tos AS timestamptz[]), CAST(:aheads AS double precision[]))
             AS s(node, from_at, to_at, ahead_s)
), recent AS MATERIALIZED (
    SELECT k.event_id, k.at, k.received_at
    FROM probing.event_key k
    WHERE k.received_at BETWEEN (SELECT min(since_at) FROM span) AND (SELECT max(until_at) FROM span) AND k.ahead_s IS NULL
), wrong AS MATERIALIZED (
    SELECT DISTINCT ON (e.event_id) e.event_id, s.node, e.at, s.ahead, s.ahead_s
    FROM span s
    CROSS JOIN LATERAL (
        SELECT h.event_id, h.at
        FROM probing.health_event h
        WHERE h.cluster = :cluster AND h.node = s.node
          AND h.at >= s.since_at + s.ahead - interval '1 day' AND h.at <= s.until_at + s.ahead + interval '1 minute'
        OFFSET 0
    ) e
    JOIN recent k ON k.event_id = e.event_id AND k.at = e.at
    CROSS JOIN LATERAL (SELECT k.received_at BETWEEN s.from_at AND s.to_at AS is_within) w
    WHERE k.received_at BETWEEN s.since_at AND s.until_at
      AND (w.is_within OR abs(extract(epoch FROM e.at - s.ahead - k.received_at)) < abs(extract(epoch FROM e.at - k.received_at)))
    ORDER BY e.event_id, w.is_within DESC
), keyed AS (
    UPDATE probing.event_key k SET at = w.at - w.ahead, ahead_s = w.ahead_s, received_at = now()
    FROM wrong w
    WHERE k.event_id = w.event_id
), corrected AS (
    UPDATE probing.health_event e
    SET at = e.at - w.ahead, observed_at = e.observed_at - w.ahead, last_at = e.last_at - w.ahead,
        -- The issue times of a dump's outstanding collectives are the node's, too.
        detail = CASE WHEN e.source = 'dump' AND jsonb_typeof(e.detail -> 'outstanding') = 'array' THEN
            jsonb_set(e.detail, '{outstanding}', (
                SELECT coalesce(jsonb_agg(
                    CASE WHEN jsonb_typeof(o.entry -> 'created_ns') = 'number' THEN
                        o.entry || jsonb_build_object('created_ns', (o.entry ->> 'created_ns')::numeric - round(w.ahead_s::numeric * 1000000000))
                    ELSE o.entry END ORDER BY o.n), '[]')
                FROM jsonb_array_elements(e.detail -> 'outstanding') WITH ORDINALITY AS o(entry, n)))
        ELSE e.detail END
    FROM wrong w
    WHERE e.cluster = :cluster AND e.node = w.node AND e.at = w.at AND e.event_id = w.event_id
    RETURNING 1
), noted AS (
    -- Evidence where they are now, and no longer where they were.
    INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
    SELECT :cluster, w.node, min(x.at), max(x.at), 0
    FROM wrong w
    CROSS JOIN LATERAL (VALUES (w.at, false), (w.at - w.ahead, true)) AS x(at, is_now)
    GROUP BY w.node, x.is_now, date_trunc('hour', x.at)
)
SELECT count(*) AS n_corrected FROM corrected
