-- probing.deliver: the agents' one door. Everything one node has to say, in one call and one transaction.
--
-- Inputs   p_cluster, p_node: whom the caller speaks for; ignored for an agent's own role, whose node
--          probing.agent_role knows. e_*: the events, one array per column of probing.health_event, all
--          of one length (times UTC, e_detail JSON text). p_checks, p_allocations: JSON arrays of records;
--          p_heartbeat: one record. p_acks: requests the node has dealt with. p_refused: rows the agent's
--          side could not even send, [{reason, n_rows, sample}].
-- Output   jsonb {accepted, duplicates, rejected, requests: [{request_id, verb, job_id, expires_at, detail}]}
--          in rows; accepted + duplicates + rejected = events given.
-- Calls are by argument name, so that a newer function still serves an older agent.
DO $overloads$
DECLARE
    f regprocedure;
BEGIN
    -- A release with more arguments replaces the function: two of one name would both fit an older agent's call.
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'probing'::regnamespace AND proname = 'deliver' LOOP
        EXECUTE format('DROP FUNCTION %s', f);
    END LOOP;
END
$overloads$;

CREATE FUNCTION probing.deliver(
    p_cluster text,
    p_node text,
    e_event_id uuid[] DEFAULT '{}',
    e_cluster text[] DEFAULT '{}',
    e_node text[] DEFAULT '{}',
    e_at timestamptz[] DEFAULT '{}',
    e_observed_at timestamptz[] DEFAULT '{}',
    e_kind text[] DEFAULT '{}',
    e_code text[] DEFAULT '{}',
    e_severity text[] DEFAULT '{}',
    e_device text[] DEFAULT '{}',
    e_pci_bus_id text[] DEFAULT '{}',
    e_gpu_uuid text[] DEFAULT '{}',
    e_pid bigint[] DEFAULT '{}',
    e_process text[] DEFAULT '{}',
    e_job_id bigint[] DEFAULT '{}',
    e_count bigint[] DEFAULT '{}',
    e_last_at timestamptz[] DEFAULT '{}',
    e_source text[] DEFAULT '{}',
    e_message text[] DEFAULT '{}',
    e_measured double precision[] DEFAULT '{}',
    e_threshold double precision[] DEFAULT '{}',
    e_unit text[] DEFAULT '{}',
    e_detail text[] DEFAULT '{}',
    p_checks jsonb DEFAULT '[]',
    p_allocations jsonb DEFAULT '[]',
    p_heartbeat jsonb DEFAULT NULL,
    p_acks uuid[] DEFAULT '{}',
    p_refused jsonb DEFAULT '[]'
) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET enable_nestloop = off -- arrays are taken for short; a thousand rows joined by loops take a second
AS $deliver$
DECLARE
    v_cluster text;
    v_node text;
    v_given bigint := coalesce(cardinality(e_event_id), 0);
    v_fit bigint := 0;
    v_accepted bigint := 0;
    v_first timestamptz;
    v_last timestamptz;
    v_requests jsonb;
    v_quota bigint; -- null = the owner or the service, which have none
    v_fresh uuid[];
    v_fresh_at timestamptz[];
    v_written bigint;
    v_this_hour bigint;
BEGIN
    SELECT a.cluster, a.node, a.rows_per_hour INTO v_cluster, v_node, v_quota FROM probing.agent_role a WHERE a.role_name = session_user;
    IF NOT FOUND THEN
        IF NOT (pg_has_role(session_user, current_user, 'MEMBER')
                OR pg_has_role(session_user, 'probing_service', 'MEMBER')) THEN
            RAISE EXCEPTION 'role % speaks for no node', session_user
                USING ERRCODE = 'insufficient_privilege', HINT = 'probing-ctl db add-agent makes one login role per node.';
        END IF;
        v_cluster := p_cluster;
        v_node := p_node;
    END IF;

    -- Bounds of one call; the agent's side stays far below them.
    IF v_given > 20000 OR jsonb_array_length(p_checks) > 5000 OR jsonb_array_length(p_allocations) > 5000
       OR cardinality(p_acks) > 5000 OR jsonb_array_length(p_refused) > 5000
       OR pg_column_size(p_checks) + pg_column_size(p_allocations) + pg_column_size(p_refused) > 8388608
       OR pg_column_size(p_heartbeat) > 1048576 THEN
        RAISE EXCEPTION 'a delivery holds at most 20000 events, 5000 checks, 5000 allocations and 8 MiB'
            USING ERRCODE = 'program_limit_exceeded';
    END IF;

    -- Times that Postgres holds and its clients cannot would be one node's way to stop everybody who reads.
    IF EXISTS (
        SELECT
        FROM jsonb_array_elements(p_checks || p_allocations || coalesce(p_heartbeat, '[]')) AS x(j),
             unnest(ARRAY[j ->> 'at', j ->> 'started_at', j ->> 'released_at']::timestamptz[]) AS t(at)
        WHERE NOT (t.at >= '1970-01-01' AND t.at < '9999-01-01')
    ) THEN
        RAISE EXCEPTION 'a check, an allocation or the heartbeat of node % has a time outside 1970 to 9998', v_node
            USING ERRCODE = 'datetime_field_overflow';
    END IF;

    IF v_given > 0 THEN
        SELECT count(*) INTO v_fit
        FROM unnest(e_cluster, e_node, e_at, e_severity) AS u(cluster, node, at, severity)
        WHERE u.cluster = v_cluster AND u.node = v_node AND u.severity IN ('info', 'low', 'high')
          AND u.at >= '1970-01-01' AND u.at < '9999-01-01';
        BEGIN
            IF v_fit < v_given THEN
                RAISE unique_violation; -- the common case below takes all rows or none
            END IF;
            -- In id order: two deliveries of the same rows then wait for each other instead of deadlocking.
            INSERT INTO probing.event_key (event_id, at)
            SELECT u.event_id, u.at FROM unnest(e_event_id, e_at) AS u(event_id, at) ORDER BY u.event_id;
            v_accepted := v_given;
        EXCEPTION WHEN unique_violation THEN
            -- Some are known already, or not to be taken: sort out which are new. Slower, and rare.
            WITH fresh AS (
                INSERT INTO probing.event_key (event_id, at)
                SELECT u.event_id, u.at
                FROM unnest(e_event_id, e_cluster, e_node, e_at, e_severity) AS u(event_id, cluster, node, at, severity)
                WHERE u.cluster = v_cluster AND u.node = v_node
                  AND u.severity IN ('info', 'low', 'high') AND u.at >= '1970-01-01' AND u.at < '9999-01-01'
                ORDER BY u.event_id
                ON CONFLICT (event_id) DO NOTHING
                RETURNING event_id, at
            )
            SELECT count(*), coalesce(array_agg(event_id), '{}'), coalesce(array_agg(at), '{}')
            INTO v_accepted, v_fresh, v_fresh_at FROM fresh;
        END;

        INSERT INTO probing.health_event (
            event_id, cluster, node, at, observed_at, kind, code, severity, device, pci_bus_id, gpu_uuid,
            pid, process, job_id, count, last_at, source, message, measured, threshold, unit, detail
        )
        SELECT
            u.event_id, v_cluster, v_node, u.at,
            CASE WHEN u.observed_at >= '1970-01-01' AND u.observed_at < '9999-01-01' THEN u.observed_at ELSE now() END,
            left(u.kind, 100), left(u.code, 200), u.severity,
            left(u.device, 500), left(u.pci_bus_id, 100), left(u.gpu_uuid, 100), u.pid, left(u.process, 500), u.job_id,
            coalesce(u.count, 1),
            CASE WHEN u.last_at >= '1970-01-01' AND u.last_at < '9999-01-01' THEN u.last_at END,
            left(u.source, 100), left(u.message, 4096), u.measured, u.threshold,
            left(u.unit, 50),
            CASE WHEN length(u.detail) > 65536 THEN '{"truncated": true}' ELSE coalesce(u.detail, '{}') END::jsonb
        FROM unnest(
            e_event_id, e_at, e_observed_at, e_kind, e_code, e_severity, e_device, e_pci_bus_id, e_gpu_uuid, e_pid,
            e_process, e_job_id, e_count, e_last_at, e_source, e_message, e_measured, e_threshold, e_unit, e_detail
        ) WITH ORDINALITY AS u(
            event_id, at, observed_at, kind, code, severity, device, pci_bus_id, gpu_uuid, pid,
            process, job_id, count, last_at, source, message, measured, threshold, unit, detail, n
        )
        -- Null when all are new: no comparison then. A row given twice is taken where it stands first.
        WHERE v_fresh IS NULL OR u.n IN (
            SELECT min(g.n) FROM unnest(e_event_id, e_at, e_cluster, e_node) WITH ORDINALITY AS g(event_id, at, cluster, node, n)
            JOIN unnest(v_fresh, v_fresh_at) AS f(event_id, at) USING (event_id, at)
            WHERE g.cluster = v_cluster AND g.node = v_node
            GROUP BY g.event_id
        );

        SELECT min(u.at), max(u.at) INTO v_first, v_last
        FROM unnest(CASE WHEN v_fresh IS NULL THEN e_at ELSE v_fresh_at END) AS u(at);
        IF v_accepted > 0 THEN
            INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
            VALUES (v_cluster, v_node, v_first, v_last, v_accepted);
        END IF;
        IF v_fit < v_given THEN
            INSERT INTO probing.rejection AS r (role_name, node, reason, day, n_rows, last_at, sample)
            SELECT session_user, v_node, reason, date_trunc('day', now()), count(*), now(), left(min(what), 500)
            FROM (
                SELECT CASE WHEN u.cluster IS DISTINCT FROM v_cluster OR u.node IS DISTINCT FROM v_node
                            THEN 'another node' ELSE 'malformed' END AS reason,
                       concat_ws(' ', u.cluster, u.node, u.severity, u.at::text) AS what
                FROM unnest(e_cluster, e_node, e_severity, e_at) AS u(cluster, node, severity, at)
                WHERE (u.cluster = v_cluster AND u.node = v_node AND u.severity IN ('info', 'low', 'high')
                       AND u.at >= '1970-01-01' AND u.at < '9999-01-01') IS NOT TRUE
            ) AS refused
            GROUP BY reason
            ON CONFLICT (role_name, node, reason, day)
            DO UPDATE SET n_rows = r.n_rows + excluded.n_rows, last_at = excluded.last_at;
        END IF;
    END IF;

    IF v_given + cardinality(p_acks) + jsonb_array_length(p_checks) + jsonb_array_length(p_allocations)
       + jsonb_array_length(p_refused) = 0 THEN
        -- A heartbeat alone need not be on the disk when it is acknowledged: the next one is seconds away, and two
        -- thousand agents at rest would ask for hundreds of syncs a second.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;

    v_written := v_accepted + jsonb_array_length(p_refused);
    IF jsonb_array_length(p_checks) > 0 THEN
        v_written := v_written + probing.deliver_checks(v_cluster, v_node, p_checks);
    END IF;
    IF jsonb_array_length(p_allocations) > 0 THEN
        v_written := v_written + probing.deliver_allocations(v_cluster, v_node, p_allocations);
    END IF;
    IF v_written > 0 AND v_quota IS NOT NULL THEN
        INSERT INTO probing.intake AS i (role_name, hour, n_rows)
        VALUES (session_user, date_trunc('hour', now()), v_written)
        ON CONFLICT (role_name, hour) DO UPDATE SET n_rows = i.n_rows + excluded.n_rows
        RETURNING i.n_rows INTO v_this_hour;
        IF v_this_hour > v_quota THEN
            RAISE EXCEPTION 'node % has delivered % new rows this hour, more than its % per hour',
                v_node, v_this_hour, v_quota USING ERRCODE = 'configuration_limit_exceeded';
        END IF;
    END IF;
    IF p_heartbeat IS NOT NULL THEN
        PERFORM probing.deliver_heartbeat(v_cluster, v_node, p_heartbeat);
    END IF;
    IF jsonb_array_length(p_refused) > 0 THEN
        INSERT INTO probing.rejection AS r (role_name, node, reason, day, n_rows, last_at, sample)
        SELECT session_user, v_node, left(x.reason, 80), date_trunc('day', now()), sum(x.n_rows), now(), left(min(x.sample), 500)
        FROM jsonb_to_recordset(p_refused) AS x(reason text, n_rows bigint, sample text)
        GROUP BY left(x.reason, 80)
        ON CONFLICT (role_name, node, reason, day)
        DO UPDATE SET n_rows = r.n_rows + excluded.n_rows, last_at = excluded.last_at;
    END IF;

    IF cardinality(p_acks) > 0 THEN
        UPDATE probing.node_request q SET acknowledged_at = now()
        WHERE q.request_id = ANY (p_acks) AND q.cluster = v_cluster AND q.node = v_node AND q.acknowledged_at IS NULL;
    END IF;
    -- Asked first, since nearly always there is none: an agent's backend is new, and each plan is made for one call.
    v_requests := '[]';
    IF EXISTS (
        SELECT FROM probing.node_request q
        WHERE q.cluster = v_cluster AND q.node = v_node AND q.acknowledged_at IS NULL AND q.expires_at > now()
    ) THEN
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'request_id', q.request_id, 'verb', q.verb, 'job_id', q.job_id,
                   'expires_at', q.expires_at, 'detail', q.detail) ORDER BY q.made_at), '[]')
        INTO v_requests
        FROM probing.node_request q
        WHERE q.cluster = v_cluster AND q.node = v_node AND q.acknowledged_at IS NULL AND q.expires_at > now();
        UPDATE probing.node_request q SET delivered_at = now()
        WHERE q.cluster = v_cluster AND q.node = v_node AND q.acknowledged_at IS NULL
          AND q.expires_at > now() AND q.delivered_at IS NULL;
    END IF;

    RETURN jsonb_build_object(
        'accepted', v_accepted, 'duplicates', v_fit - v_accepted, 'rejected', v_given - v_fit, 'requests', v_requests
    );
END
$deliver$;

-- The check results of one node: the latest of each check, and a row of history per change.
-- Output   new rows of history. A changed number in the message is no change; a changed outcome is.
CREATE OR REPLACE FUNCTION probing.deliver_checks(p_cluster text, p_node text, p_checks jsonb) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $checks$
    WITH given AS (
        SELECT DISTINCT ON (r.name, r.at) r.*
        FROM jsonb_array_elements(p_checks) AS c,
             jsonb_populate_record(
                 NULL::probing.check_result,
                 '{"message": "", "duration_s": 0, "timed_out": false, "version": "1", "detail": {}}'::jsonb
                 || c || jsonb_build_object('cluster', p_cluster, 'node', p_node)
             ) AS r
        ORDER BY r.name, r.at
    ), compared AS (
        SELECT g.name, g.at,
               jsonb_build_array(g.outcome, g.severity, g.device, g.version) AS now_is,
               coalesce(
                   lag(jsonb_build_array(g.outcome, g.severity, g.device, g.version))
                       OVER (PARTITION BY g.name ORDER BY g.at),
                   before.was
               ) AS was
        FROM given g
        LEFT JOIN LATERAL (
            SELECT jsonb_build_array(h.outcome, h.severity, h.device, h.version) AS was
            FROM probing.check_result h
            WHERE h.cluster = g.cluster AND h.node = g.node AND h.name = g.name AND h.at <= g.at
            ORDER BY h.at DESC LIMIT 1
        ) AS before ON true
    ), changed AS (
        INSERT INTO probing.check_result
        SELECT g.* FROM given g JOIN compared c USING (name, at) WHERE c.now_is IS DISTINCT FROM c.was
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), latest AS (
        INSERT INTO probing.check_now AS n
        SELECT DISTINCT ON (g.name) g.* FROM given g ORDER BY g.name, g.at DESC
        ON CONFLICT (cluster, node, name) DO UPDATE SET
            outcome = excluded.outcome, severity = excluded.severity, message = excluded.message,
            device = excluded.device, measured = excluded.measured, threshold = excluded.threshold,
            unit = excluded.unit, duration_s = excluded.duration_s, timed_out = excluded.timed_out,
            version = excluded.version, at = excluded.at, detail = excluded.detail
        WHERE excluded.at >= n.at
    )
    SELECT count(*) FROM changed
$checks$;

-- The GPU allocations a node's Prolog and Epilog saw; a later report of the same start completes the first.
-- Output   rows stored. What is new of a start whose verdict is given already is noted as late evidence.
CREATE OR REPLACE FUNCTION probing.deliver_allocations(p_cluster text, p_node text, p_allocations jsonb) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $allocations$
    WITH given AS (
        SELECT DISTINCT ON (r.job_id, r.at) r.*
        FROM jsonb_array_elements(p_allocations) WITH ORDINALITY AS e(c, n),
             jsonb_populate_record(
                 NULL::probing.job_allocation,
                 '{"restart_count": 0, "gpu_indices": "", "detail": {}}'::jsonb
                 || e.c || jsonb_build_object('cluster', p_cluster, 'node', p_node)
             ) AS r
        ORDER BY r.job_id, r.at, e.n DESC
    ), late AS (
        INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
        SELECT p_cluster, p_node, a.end_at, a.end_at, 0
        FROM given g
        JOIN probing.job_attempt a
          ON a.cluster = p_cluster AND a.job_id = g.job_id AND a.judged_at IS NOT NULL AND a.end_at >= g.at
        LEFT JOIN probing.job_allocation known
          ON known.cluster = p_cluster AND known.job_id = g.job_id AND known.node = p_node AND known.at = g.at
        WHERE coalesce(g.gpu_uuids, known.gpu_uuids) IS DISTINCT FROM known.gpu_uuids
           OR coalesce(nullif(g.gpu_indices, ''), known.gpu_indices, '') <> coalesce(known.gpu_indices, '')
    ), stored AS (
        INSERT INTO probing.job_allocation AS a
        SELECT * FROM given
        ON CONFLICT (cluster, job_id, node, at) DO UPDATE SET
            restart_count = excluded.restart_count,
            uid = coalesce(excluded.uid, a.uid),
            gpu_uuids = coalesce(excluded.gpu_uuids, a.gpu_uuids),
            gpu_indices = coalesce(nullif(excluded.gpu_indices, ''), a.gpu_indices),
            released_at = coalesce(excluded.released_at, a.released_at),
            detail = a.detail || excluded.detail
        RETURNING 1
    )
    SELECT count(*) FROM stored
$allocations$;

-- Spans with one more. Of more than a hundred the older ones become one, and what lay between them counts as not watched, too:
-- the row of an agent that dies every few minutes stays short.
CREATE OR REPLACE FUNCTION probing.with_gap(p_spans tstzmultirange, p_gap tstzrange) RETURNS tstzmultirange
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $gap$
    SELECT CASE WHEN count(*) <= 100 THEN range_agg(span)
                ELSE tstzmultirange(range_merge(range_agg(span) FILTER (WHERE newest > 50)))
                     + range_agg(span) FILTER (WHERE newest <= 50) END
    FROM (SELECT span, row_number() OVER (ORDER BY span DESC) AS newest
          FROM unnest(p_spans + tstzmultirange(p_gap)) AS span) AS spans
$gap$;

-- The agent's own state: the one heard last, whatever its clock says, and when that was by the server's clock.
-- After a silence, what ended in it was judged as on a node that nobody watched: that is noted as late evidence. (A minute:
-- as attribution's `unwatched_nodes`.) An agent that was only not heard has watched all the same: where another process speaks
-- now, nobody did from the last word of the one before to its start, which a node's clock may put anywhere: at most until now.
CREATE OR REPLACE FUNCTION probing.deliver_heartbeat(p_cluster text, p_node text, p_heartbeat jsonb) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $heartbeat$
    WITH given AS (
        SELECT r.* FROM jsonb_populate_record(
            NULL::probing.agent_heartbeat,
            '{"boot_id": "", "version": "", "beat_s": 10, "spool_depth": 0, "spool_bytes": 0, "lag_s": 0,
              "dropped_total": 0, "coalesced_total": 0, "rejected_total": 0, "hung_children": 0, "rss_bytes": 0,
              "cpu_s": 0, "sources": {}, "faults": {}, "jobs": [], "ranks": {}}'::jsonb
            || p_heartbeat
            || jsonb_build_object('cluster', p_cluster, 'node', p_node, 'received_at', now(),
                                  'unwatched', CASE WHEN p_heartbeat ->> 'started_at' IS NULL THEN '{}'
                                                    ELSE tstzmultirange(tstzrange(NULL, least((p_heartbeat ->> 'started_at')::timestamptz, now()))) END)
        ) AS r
    ), late AS (
        INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
        SELECT p_cluster, p_node, known.at, given.at, 0
        FROM given, probing.agent_heartbeat known
        WHERE known.cluster = p_cluster AND known.node = p_node AND given.at > known.at + interval '1 minute'
    )
    INSERT INTO probing.agent_heartbeat AS h
    SELECT * FROM given
    ON CONFLICT (cluster, node) DO UPDATE SET
        at = excluded.at, boot_id = excluded.boot_id, version = excluded.version, started_at = excluded.started_at,
        beat_s = excluded.beat_s, spool_depth = excluded.spool_depth, spool_bytes = excluded.spool_bytes,
        lag_s = excluded.lag_s, dropped_total = excluded.dropped_total, coalesced_total = excluded.coalesced_total,
        rejected_total = excluded.rejected_total, hung_children = excluded.hung_children,
        rss_bytes = excluded.rss_bytes, cpu_s = excluded.cpu_s, sources = excluded.sources, faults = excluded.faults,
        jobs = excluded.jobs, ranks = excluded.ranks, received_at = excluded.received_at,
        unwatched = CASE WHEN excluded.started_at > h.at + interval '1 minute' AND h.at < now()
                         THEN probing.with_gap(h.unwatched, tstzrange(h.at, least(excluded.started_at, now())))
                         ELSE h.unwatched END
$heartbeat$;
