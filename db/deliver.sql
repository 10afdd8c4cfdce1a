-- probing.deliver: the agents' one door. Everything one node has to say, in one call and one transaction.
--
-- Inputs   p_cluster, p_node: whom the caller speaks for; ignored for an agent's own role, whose node
--          probing.agent_role knows. e_*: the events, one array per column of probing.health_event, all
--          of one length (times UTC, e_detail JSON text). p_checks, p_allocations: JSON arrays of records;
--          p_heartbeat: one record. p_acks: requests the node has dealt with. p_refused: rows the agent's
--          side could not even send, [{reason, n_rows, sample}]. p_answered, p_answers: what the node answers to requests of
--          verb ask, which it has dealt with thereby; kept ten minutes.
-- Output   jsonb {accepted, duplicates, rejected, requests: [{request_id, verb, job_id, expires_at, detail}]}
--          in rows; accepted + duplicates + the events among the rejected = events given.
-- Null is an argument left out. A row that does not fit (fit.sql) is refused and counted; an argument that is no list, lists of
-- events of several lengths, or more than the bounds allow, is an error, and nothing is stored.
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
    p_refused jsonb DEFAULT '[]',
    p_answered uuid[] DEFAULT '{}',
    p_answers bytea[] DEFAULT '{}'
) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET enable_nestloop = off -- arrays are taken for short; a thousand rows joined by loops take a second
AS $deliver$
DECLARE
    v_role text := session_user;
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
    v_grave boolean; -- all that is given are faults of the node itself
    v_fits boolean[]; -- of each event: it may be stored
    v_wrong jsonb;
    v_n_wrong bigint;
    v_n_refused bigint := 0; -- rows other than events
    v_bytes bigint;
BEGIN
    SELECT a.cluster, a.node, a.rows_per_hour INTO v_cluster, v_node, v_quota FROM probing.agent_role a WHERE a.role_name = v_role;
    IF NOT FOUND AND current_setting('probing.speaks_for', true) <> '' AND pg_has_role(session_user, 'probing_door', 'MEMBER') THEN
        -- The door has checked the node's certificate and names its role; an agent's own role is found above, whatever it sets.
        v_role := current_setting('probing.speaks_for');
        SELECT a.cluster, a.node, a.rows_per_hour INTO v_cluster, v_node, v_quota FROM probing.agent_role a WHERE a.role_name = v_role;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'role % speaks for no node', v_role
                USING ERRCODE = 'insufficient_privilege', HINT = 'probing-ctl db add-agent makes one login role per node.';
        END IF;
    ELSIF v_cluster IS NULL THEN
        IF NOT (pg_has_role(session_user, current_user, 'MEMBER')
                OR pg_has_role(session_user, 'probing_service', 'MEMBER')) THEN
            RAISE EXCEPTION 'role % speaks for no node', session_user
                USING ERRCODE = 'insufficient_privilege', HINT = 'probing-ctl db add-agent makes one login role per node.';
        END IF;
        v_cluster := p_cluster;
        v_node := p_node;
    END IF;

    p_checks := coalesce(p_checks, '[]');
    p_allocations := coalesce(p_allocations, '[]');
    p_refused := coalesce(p_refused, '[]');
    p_acks := coalesce(p_acks, '{}');
    p_answered := coalesce(p_answered, '{}');
    p_answers := coalesce(p_answers, '{}');
    IF jsonb_typeof(p_checks) <> 'array' OR jsonb_typeof(p_allocations) <> 'array' OR jsonb_typeof(p_refused) <> 'array' THEN
        RAISE EXCEPTION 'checks, allocations and refusals are JSON arrays' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (
        SELECT FROM unnest(ARRAY[
            cardinality(e_cluster), cardinality(e_node), cardinality(e_at), cardinality(e_observed_at), cardinality(e_kind),
            cardinality(e_code), cardinality(e_severity), cardinality(e_device), cardinality(e_pci_bus_id),
            cardinality(e_gpu_uuid), cardinality(e_pid), cardinality(e_process), cardinality(e_job_id), cardinality(e_count),
            cardinality(e_last_at), cardinality(e_source), cardinality(e_message), cardinality(e_measured),
            cardinality(e_threshold), cardinality(e_unit), cardinality(e_detail)
        ]) AS n
        WHERE n NOT IN (0, v_given) -- an older agent leaves a column out
    ) THEN
        RAISE EXCEPTION 'the columns of the events are of several lengths' USING ERRCODE = 'array_subscript_error';
    END IF;

    -- Bounds of one call; the agent's side stays far below them.
    SELECT sum(pg_column_size(of_rows)) INTO v_bytes FROM unnest(ARRAY[p_checks, p_allocations, p_refused]) AS of_rows;
    IF v_given > 20000 OR jsonb_array_length(p_checks) > 5000 OR jsonb_array_length(p_allocations) > 5000
       OR cardinality(p_acks) > 5000 OR jsonb_array_length(p_refused) > 5000
       OR v_bytes > 8388608 OR coalesce(pg_column_size(p_heartbeat), 0) > 1048576 THEN
        RAISE EXCEPTION 'a delivery holds at most 20000 events, 5000 checks, 5000 allocations and 8 MiB'
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF cardinality(p_answered) > 16 OR cardinality(p_answers) <> cardinality(p_answered)
       OR (SELECT coalesce(max(octet_length(a)), 0) FROM unnest(p_answers) AS a) > 4194304 THEN
        RAISE EXCEPTION 'a delivery holds at most 16 answers of 4 MiB, one to each request answered'
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    -- Text is stored shortened; what remains of it is bounded by the events.
    v_bytes := v_bytes + coalesce(pg_column_size(e_message), 0) + coalesce(pg_column_size(e_detail), 0);
    IF v_bytes > 134217728 THEN
        RAISE EXCEPTION 'a delivery holds at most 128 MiB of words' USING ERRCODE = 'program_limit_exceeded';
    END IF;

    SELECT f.p_rows, f.p_wrong, f.p_n_wrong INTO p_checks, v_wrong, v_n_wrong FROM probing.fit_rows('check', p_checks) AS f;
    p_refused := p_refused || v_wrong;
    v_n_refused := v_n_refused + v_n_wrong;
    SELECT f.p_rows, f.p_wrong, f.p_n_wrong INTO p_allocations, v_wrong, v_n_wrong
    FROM probing.fit_rows('allocation', p_allocations) AS f;
    p_refused := p_refused || v_wrong;
    v_n_refused := v_n_refused + v_n_wrong;
    IF p_heartbeat IS NOT NULL THEN
        SELECT f.p_rows -> 0, f.p_wrong, f.p_n_wrong INTO p_heartbeat, v_wrong, v_n_wrong
        FROM probing.fit_rows('heartbeat', jsonb_build_array(p_heartbeat)) AS f;
        p_refused := p_refused || v_wrong;
        v_n_refused := v_n_refused + v_n_wrong;
        p_heartbeat := p_heartbeat || jsonb_build_object('ranks', probing.fit_ranks(coalesce(p_heartbeat -> 'ranks', '{}')));
    END IF;

    IF v_given > 0 THEN
        SELECT array_agg(x.fits ORDER BY x.n), count(*) FILTER (WHERE x.fits) INTO v_fits, v_fit
        FROM (
            SELECT u.n,
                   (u.cluster = v_cluster AND u.node = v_node
                    AND probing.is_event(u.event_id, u.at, u.severity, u.kind, u.source, u.detail)) IS TRUE AS fits
            FROM unnest(e_event_id, e_cluster, e_node, e_at, e_severity, e_kind, e_source, e_detail) WITH ORDINALITY
                 AS u(event_id, cluster, node, at, severity, kind, source, detail, n)
        ) AS x;
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
                FROM unnest(e_event_id, e_at, v_fits) AS u(event_id, at, fits)
                WHERE u.fits
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
        SELECT u.event_id, v_cluster, v_node, u.at, u.observed_at, u.kind, u.code, u.severity, u.device, u.pci_bus_id, u.gpu_uuid,
            u.pid, u.process, u.job_id, u.count, u.last_at, u.source, u.message, u.measured, u.threshold, u.unit, u.detail
        FROM probing.shortened_events(
            e_event_id, e_at, e_observed_at, e_kind, e_code, e_severity, e_device, e_pci_bus_id, e_gpu_uuid, e_pid,
            e_process, e_job_id, e_count, e_last_at, e_source, e_message, e_measured, e_threshold, e_unit, e_detail
        ) AS u
        -- Null when all are new: no comparison then. A row given twice is taken where it stands first.
        WHERE v_fresh IS NULL OR u.n IN (
            SELECT min(g.n) FROM unnest(e_event_id, e_at, v_fits) WITH ORDINALITY AS g(event_id, at, fits, n)
            JOIN unnest(v_fresh, v_fresh_at) AS f(event_id, at) USING (event_id, at)
            WHERE g.fits
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
            SELECT v_role, v_node, reason, date_trunc('day', now()), count(*), now(), left(min(what), 500)
            FROM (
                SELECT CASE WHEN u.cluster IS DISTINCT FROM v_cluster OR u.node IS DISTINCT FROM v_node
                            THEN 'another node' ELSE 'malformed' END AS reason,
                       concat_ws(' ', u.cluster, u.node, u.severity, u.at::text) AS what
                FROM unnest(e_cluster, e_node, e_severity, e_at, v_fits) AS u(cluster, node, severity, at, fits)
                WHERE NOT u.fits
            ) AS refused
            GROUP BY reason
            ON CONFLICT (role_name, node, reason, day)
            DO UPDATE SET n_rows = least(r.n_rows, 1e18::bigint) + excluded.n_rows, last_at = excluded.last_at;
        END IF;
    END IF;

    IF v_given + cardinality(p_acks) + jsonb_array_length(p_checks) + jsonb_array_length(p_allocations)
       + jsonb_array_length(p_refused) + cardinality(p_answered) = 0 THEN
        -- A heartbeat alone need not be on the disk when it is acknowledged: the next one is seconds away, and two
        -- thousand agents at rest would ask for hundreds of syncs a second.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;

    -- Beside its rows a node's quota is of what they hold: every 4 KiB beyond the first counts as another one.
    v_written := v_accepted + jsonb_array_length(p_refused) + CASE WHEN v_accepted > 0 THEN v_bytes / 4096 ELSE 0 END;
    IF jsonb_array_length(p_checks) > 0 THEN
        v_written := v_written + probing.deliver_checks(v_cluster, v_node, p_checks);
    END IF;
    IF jsonb_array_length(p_allocations) > 0 THEN
        v_written := v_written + probing.deliver_allocations(v_cluster, v_node, p_allocations);
    END IF;
    -- A heartbeat is free at an agent's own pace. Faster than that it counts, for it writes a row anew and may reopen verdicts.
    IF p_heartbeat IS NOT NULL AND v_quota IS NOT NULL AND EXISTS (
        SELECT FROM probing.agent_heartbeat h
        WHERE h.cluster = v_cluster AND h.node = v_node AND h.received_at > now() - interval '1 second'
    ) THEN
        v_written := v_written + 1 + pg_column_size(p_heartbeat) / 4096;
    END IF;
    IF v_written > 0 AND v_quota IS NOT NULL THEN
        INSERT INTO probing.intake AS i (role_name, hour, n_rows)
        VALUES (v_role, date_trunc('hour', now()), v_written)
        ON CONFLICT (role_name, hour) DO UPDATE SET n_rows = i.n_rows + excluded.n_rows
        RETURNING i.n_rows INTO v_this_hour;
        -- A tenth more for what is grave: a job that floods its node's rows hides no fault of the node.
        v_grave := v_accepted > 0 AND jsonb_array_length(p_checks) + jsonb_array_length(p_refused) = 0 AND NOT EXISTS (
            SELECT FROM unnest(e_severity, e_source) AS u(severity, source)
            WHERE u.severity IS DISTINCT FROM 'high' OR coalesce(u.source, 'joblog') IN ('joblog', 'probe', 'dump')
        );
        IF v_this_hour > v_quota + (CASE WHEN v_grave THEN v_quota / 10 ELSE 0 END) THEN
            RAISE EXCEPTION 'node % has delivered % new rows this hour, more than its % per hour',
                v_node, v_this_hour, v_quota USING ERRCODE = 'configuration_limit_exceeded';
        END IF;
    END IF;
    IF p_heartbeat IS NOT NULL THEN
        PERFORM probing.deliver_heartbeats(ARRAY[v_cluster], ARRAY[v_node], ARRAY[p_heartbeat]);
    END IF;
    IF jsonb_array_length(p_refused) > 0 THEN
        INSERT INTO probing.rejection AS r (role_name, node, reason, day, n_rows, last_at, sample)
        SELECT v_role, v_node, x.reason, date_trunc('day', now()), sum(x.n_rows)::bigint, now(), left(min(x.sample), 500)
        FROM (
            SELECT left(coalesce(e.one ->> 'reason', 'unknown'), 80) AS reason, coalesce(e.one ->> 'sample', '') AS sample,
                   CASE WHEN jsonb_typeof(e.one -> 'n_rows') = 'number'
                        THEN least(greatest((e.one ->> 'n_rows')::numeric, 1), 1000000) ELSE 1 END AS n_rows
            FROM jsonb_array_elements(p_refused) AS e(one)
        ) AS x
        GROUP BY x.reason
        ON CONFLICT (role_name, node, reason, day)
        DO UPDATE SET n_rows = least(r.n_rows, 1e18::bigint) + excluded.n_rows, last_at = excluded.last_at;
    END IF;

    IF cardinality(p_answered) > 0 THEN
        PERFORM probing.deliver_answers(v_cluster, v_node, p_answered, p_answers);
        p_acks := p_acks || p_answered;
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
        -- What an agent could not read is not handed over, and no more at once than it does.
        WITH handed AS (
            SELECT q.* FROM probing.node_request q
            WHERE q.cluster = v_cluster AND q.node = v_node AND q.acknowledged_at IS NULL AND q.expires_at > now()
              AND probing.is_time(q.expires_at) AND jsonb_typeof(q.detail) = 'object' AND pg_column_size(q.detail) <= 65536
              AND probing.is_plain(q.detail) AND (q.verb <> 'ask' OR probing.is_question(q.detail))
            -- Whoever asks a thousand questions holds up no permission and no collection.
            ORDER BY q.verb = 'ask', q.made_at LIMIT 100
        ), noted AS (
            UPDATE probing.node_request q SET delivered_at = now()
            FROM handed h WHERE q.request_id = h.request_id AND q.delivered_at IS NULL
        )
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'request_id', h.request_id, 'verb', h.verb, 'job_id', h.job_id,
                   'expires_at', h.expires_at, 'detail', h.detail) ORDER BY h.made_at), '[]')
        INTO v_requests FROM handed h;
    END IF;

    RETURN jsonb_build_object(
        'accepted', v_accepted, 'duplicates', v_fit - v_accepted, 'rejected', v_given - v_fit + v_n_refused,
        'requests', v_requests
    );
END
$deliver$;

-- A question about a job's tables: names of tables, never an expression to evaluate, a command or a path.
-- Inputs   p_detail: a request's. Output   true when an agent may be handed it.
CREATE OR REPLACE FUNCTION probing.is_question(p_detail jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $question$
    SELECT CASE WHEN jsonb_typeof(p_detail -> 'scans') IS DISTINCT FROM 'array' THEN false
                WHEN jsonb_array_length(p_detail -> 'scans') NOT BETWEEN 1 AND 16 THEN false
                ELSE NOT EXISTS (
                    SELECT FROM jsonb_array_elements(p_detail -> 'scans') AS s(scan)
                    WHERE (s.scan ->> 'table' ~ '^[a-z_][a-z0-9_]*[.]([[:alpha:]_][[:alnum:]_]*|[*])$') IS NOT TRUE
                       OR length(s.scan ->> 'table') > 200
                ) END
$question$;

-- What a node answers to questions, for whoever asked; each once, and only to one that was put to this node and is still open.
-- A node's answers of the last ten minutes hold at most 64 MiB: an answer beyond is not kept, and its asker names the node.
CREATE OR REPLACE FUNCTION probing.deliver_answers(p_cluster text, p_node text, p_answered uuid[], p_answers bytea[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $answers$
    DELETE FROM probing.node_answer a
    WHERE a.cluster = p_cluster AND a.node = p_node AND a.made_at < clock_timestamp() - interval '10 minutes';
    INSERT INTO probing.node_answer (request_id, cluster, node, body, made_at)
    SELECT u.request_id, p_cluster, p_node, u.body, clock_timestamp()
    FROM unnest(p_answered, p_answers) AS u(request_id, body)
    JOIN probing.node_request q ON q.request_id = u.request_id
    WHERE q.verb = 'ask' AND q.cluster = p_cluster AND q.node = p_node
      AND q.acknowledged_at IS NULL AND q.expires_at > now() AND u.body IS NOT NULL
      AND (SELECT coalesce(sum(octet_length(a.body)), 0) FROM probing.node_answer a
           WHERE a.cluster = p_cluster AND a.node = p_node) <= 67108864
    ON CONFLICT (request_id) DO NOTHING;
$answers$;

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
                 probing.usual_row('check') || c || jsonb_build_object('cluster', p_cluster, 'node', p_node)
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
        SELECT DISTINCT ON (g.name) g.* FROM given g ORDER BY g.name, g.at > now() + interval '5 seconds', g.at DESC
        ON CONFLICT (cluster, node, name) DO UPDATE SET
            outcome = excluded.outcome, severity = excluded.severity, message = excluded.message,
            device = excluded.device, measured = excluded.measured, threshold = excluded.threshold,
            unit = excluded.unit, duration_s = excluded.duration_s, timed_out = excluded.timed_out,
            version = excluded.version, at = excluded.at, detail = excluded.detail
        -- A delivery that was given up may still come, and a long backlog comes failures first: an older result is no news.
        -- Only a stored time that is still to come is a wrong clock's.
        WHERE excluded.at >= n.at OR n.at > now() + interval '5 seconds'
    )
    SELECT count(*) FROM changed
$checks$;

-- Whether a Prolog that ran at p_at was of the start from p_start_at to p_end_at (null: it runs). The clocks of a node and of the controller differ
-- by a minute at most. Slurm cuts its times to whole seconds: a job that ends in its first second has a Prolog after its end. Attribution's
-- assign_rows.is_prolog_of is the same. STABLE and without settings, so that it becomes a part of the query, which then uses the table's key.
CREATE OR REPLACE FUNCTION probing.is_prolog_of(p_at timestamptz, p_start_at timestamptz, p_end_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $prolog$ SELECT p_at >= p_start_at - interval '1 minute' AND (p_end_at IS NULL OR p_at < p_end_at + interval '1 second') $prolog$;

-- The GPU allocations a node's Prolog and Epilog saw; a later report of the same start completes the first.
-- Output   rows stored. What is new of a start whose verdict is given already is noted as late evidence, and so is its output.
CREATE OR REPLACE FUNCTION probing.deliver_allocations(p_cluster text, p_node text, p_allocations jsonb) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET enable_nestloop = on -- a few jobs of all that ever ran, by the tables' keys
AS $allocations$
    WITH given AS (
        SELECT DISTINCT ON (r.job_id, r.at) r.*
        FROM jsonb_array_elements(p_allocations) WITH ORDINALITY AS e(c, n),
             jsonb_populate_record(
                 NULL::probing.job_allocation,
                 probing.usual_row('allocation') || e.c
                 || jsonb_build_object('cluster', p_cluster, 'node', p_node, 'received_at', now(), 'updated_at', now())
             ) AS r
        ORDER BY r.job_id, r.at, e.n DESC
    ), late AS (
        INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events, job_id)
        SELECT p_cluster, p_node, a.end_at, a.end_at, 0, CASE WHEN news.of_node THEN NULL ELSE g.job_id END
        FROM given g
        JOIN probing.job_attempt a ON a.cluster = p_cluster AND a.job_id = g.job_id
         AND a.end_at IS NOT NULL AND probing.is_prolog_of(g.at, '-infinity', a.end_at) -- of a node, an earlier one is news, too
        LEFT JOIN probing.job_allocation known
          ON known.cluster = p_cluster AND known.job_id = g.job_id AND known.node = p_node AND known.at = g.at
        CROSS JOIN LATERAL (
            -- That a Prolog or an Epilog ran is evidence by itself, also of a job without GPUs: the node was there then.
            SELECT a.judged_at IS NOT NULL
                   AND (known.job_id IS NULL
                        OR coalesce(g.released_at, known.released_at) IS DISTINCT FROM known.released_at
                        OR coalesce(g.gpu_uuids, known.gpu_uuids) IS DISTINCT FROM known.gpu_uuids
                        OR coalesce(nullif(g.gpu_indices, ''), known.gpu_indices, '') <> coalesce(known.gpu_indices, '')) AS of_node,
                   -- The output of one start, on the node that attribution asks about (case_outputs.sql), says something of that start
                   -- alone. One without a verdict may be getting it this moment, without its output. A later component of a heterogeneous
                   -- job has no output of its own.
                   a.state <> 'COMPLETED' AND a.nodes[1] = p_node AND probing.is_prolog_of(g.at, a.start_at, a.end_at) AND coalesce(a.het_offset, 0) = 0
                   AND g.detail ? 'logs' AND g.detail -> 'logs' IS DISTINCT FROM known.detail -> 'logs' AS of_job
        ) AS news
        WHERE news.of_node OR news.of_job
    ), stored AS (
        INSERT INTO probing.job_allocation AS a
        SELECT * FROM given
        ON CONFLICT (cluster, job_id, node, at) DO UPDATE SET
            restart_count = excluded.restart_count,
            uid = coalesce(excluded.uid, a.uid),
            gpu_uuids = coalesce(excluded.gpu_uuids, a.gpu_uuids),
            gpu_indices = coalesce(nullif(excluded.gpu_indices, ''), a.gpu_indices),
            released_at = coalesce(excluded.released_at, a.released_at),
            updated_at = excluded.updated_at,
            detail = CASE WHEN pg_column_size(a.detail) + pg_column_size(excluded.detail) > 262144 THEN a.detail
                          ELSE a.detail || excluded.detail END
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

-- An instant of a node's clock by the right clock: by the server's, or by the node's own where most agents show that the server's is off.
-- Inputs   p_time: the instant; p_beat_at, p_server_at: the time of a heartbeat that the clock made about then, and when it was stored.
-- A wrong clock of the server is what attribution takes it for (passes/node_clocks.py). Nothing was before the heartbeat that shows it.
CREATE OR REPLACE FUNCTION probing.right_time(p_cluster text, p_node text, p_time timestamptz, p_beat_at timestamptz, p_server_at timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $time$
    SELECT CASE WHEN ahead.s <> 0
                 AND (SELECT count(DISTINCT c.node) + 1 FROM probing.node_clock c
                      WHERE c.cluster = p_cluster AND c.node <> p_node AND abs(c.offset_s - ahead.s) <= 60
                        AND p_server_at BETWEEN c.from_at - interval '15 seconds' AND c.to_at + interval '15 seconds')
                     > greatest(1, (SELECT count(*) FROM probing.agent_heartbeat h
                                    WHERE h.cluster = p_cluster AND h.received_at >= p_server_at - interval '10 minutes') / 2.0)
                THEN least(p_time, p_beat_at)
                ELSE least(p_time - make_interval(secs => ahead.s), p_server_at) END
    FROM (SELECT coalesce(CASE WHEN p_beat_at > p_server_at + interval '5 seconds' THEN extract(epoch FROM p_beat_at - p_server_at)::double precision
                               WHEN p_beat_at > p_server_at - interval '30 seconds' THEN 0
                               ELSE (SELECT c.offset_s FROM probing.node_clock c
                                     WHERE c.cluster = p_cluster AND c.node = p_node AND c.is_sure
                                       AND p_server_at BETWEEN c.from_at AND c.to_at + interval '10 minutes'
                                     ORDER BY c.from_at DESC LIMIT 1) END, 0) AS s) AS ahead
$time$;

-- The agent's own state: the one heard last, whatever its clock says, and when that was by the server's clock.
-- After a silence, what ended in it was judged as on a node that nobody watched: that is noted as late evidence. (A minute:
-- as attribution's `unwatched_nodes`.) An agent that was only not heard has watched all the same: where another process speaks
-- now, nobody did from the last word of the one before to its start, which a node's clock may put anywhere: at most until now.
-- That is a gap if the one before missed two heartbeats, as where its silence is an event (control_plane's `silence`), or a minute.
-- Inputs   of each node its cluster, its name and its heartbeat; no node twice.
DROP FUNCTION IF EXISTS probing.deliver_heartbeat(text, text, jsonb); -- until 0.1.0
CREATE OR REPLACE FUNCTION probing.deliver_heartbeats(p_clusters text[], p_nodes text[], p_heartbeats jsonb[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET enable_nestloop = on -- a few nodes of thousands, by the table's key
AS $heartbeat$
    WITH given AS (
        SELECT r.* FROM unnest(p_clusters, p_nodes, p_heartbeats) AS g(cluster, node, beat),
        LATERAL jsonb_populate_record(
            NULL::probing.agent_heartbeat,
            probing.usual_row('heartbeat')
            || g.beat
            || jsonb_build_object('cluster', g.cluster, 'node', g.node, 'received_at', now(),
                                  'unwatched', CASE WHEN g.beat ->> 'started_at' IS NULL THEN '{}'
                                                    ELSE tstzmultirange(tstzrange(NULL, least((g.beat ->> 'started_at')::timestamptz, now()))) END)
        ) AS r
    ), late AS (
        INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
        SELECT given.cluster, given.node,
               -- A heartbeat that waited was made before it came; one from after it came is of a clock ahead. Of clocks that were
               -- never set, as they are before and after, only the nodes' own times are compared.
               least(known.at, known.received_at),
               CASE WHEN greatest(known.at - known.received_at, given.at - now()) < interval '-1 day' THEN given.at ELSE now() END, 0
        FROM given JOIN probing.agent_heartbeat known ON known.cluster = given.cluster AND known.node = given.node
        WHERE given.at > known.at + interval '1 minute' OR now() > known.received_at + interval '1 minute'
    ), off AS (
        -- A heartbeat is made just before it is delivered. One that was kept waiting looks behind, so that takes more of them, in a row.
        SELECT given.cluster, given.node, extract(epoch FROM given.at - now())::double precision AS offset_s FROM given
        WHERE given.at > now() + interval '5 seconds' OR given.at BETWEEN now() - interval '1 day' AND now() - interval '30 seconds'
    ), latest AS (
        SELECT DISTINCT ON (c.cluster, c.node) c.cluster, c.node, c.from_at, off.offset_s,
               c.is_sure
        FROM off JOIN probing.node_clock c ON c.cluster = off.cluster AND c.node = off.node
        ORDER BY c.cluster, c.node, c.from_at DESC
    ), extended AS (
        -- Any other heartbeat since ends the time, except of a clock a little ahead: one of its heartbeats that waited looks right.
        -- A wrong clock is off by the same each time, waiting differs: until a clock counts as behind, 3 s from the first heartbeat are allowed.
        UPDATE probing.node_clock c
        SET to_at = now(), n_beats = c.n_beats + 1, offset_s = CASE WHEN l.is_sure THEN greatest(c.offset_s, l.offset_s) ELSE c.offset_s END
        FROM latest l
        WHERE c.cluster = l.cluster AND c.node = l.node AND c.from_at = l.from_at AND c.to_at >= now() - interval '10 minutes'
          AND CASE WHEN l.is_sure THEN l.offset_s BETWEEN c.offset_s - 30 AND c.offset_s + 5
                   ELSE l.offset_s BETWEEN c.offset_s - 3 AND c.offset_s + 3 END
          AND (c.offset_s BETWEEN 0 AND 35
               OR NOT EXISTS (SELECT FROM probing.agent_heartbeat known
                              WHERE known.cluster = c.cluster AND known.node = c.node AND known.received_at > c.to_at))
        RETURNING c.cluster, c.node, c.from_at
    ), trimmed AS (
        -- Neither a clock that jumps at every heartbeat nor heartbeats that wait fill the table.
        DELETE FROM probing.node_clock c USING off
        WHERE c.cluster = off.cluster AND c.node = off.node
          AND (c.from_at < (SELECT x.from_at FROM probing.node_clock x WHERE x.cluster = off.cluster AND x.node = off.node
                            ORDER BY x.from_at DESC OFFSET 49 LIMIT 1)
               OR (NOT c.is_sure
                   AND NOT EXISTS (SELECT FROM extended e WHERE e.cluster = c.cluster AND e.node = c.node AND e.from_at = c.from_at)))
    ), begun AS (
        INSERT INTO probing.node_clock (cluster, node, from_at, to_at, offset_s, n_beats)
        SELECT off.cluster, off.node, now(), now(), off.offset_s, 1 FROM off
        WHERE NOT EXISTS (SELECT FROM extended e WHERE e.cluster = off.cluster AND e.node = off.node)
        ON CONFLICT DO NOTHING
    )
    INSERT INTO probing.agent_heartbeat AS h
    SELECT * FROM given ORDER BY cluster, node -- two batches wait for each other instead of deadlocking
    ON CONFLICT (cluster, node) DO UPDATE SET
        at = excluded.at, boot_id = excluded.boot_id, version = excluded.version, started_at = excluded.started_at,
        beat_s = excluded.beat_s, spool_depth = excluded.spool_depth, spool_bytes = excluded.spool_bytes,
        lag_s = excluded.lag_s, dropped_total = excluded.dropped_total, coalesced_total = excluded.coalesced_total,
        rejected_total = excluded.rejected_total, hung_children = excluded.hung_children,
        rss_bytes = excluded.rss_bytes, cpu_s = excluded.cpu_s, sources = excluded.sources, faults = excluded.faults,
        jobs = excluded.jobs, ranks = excluded.ranks, received_at = excluded.received_at,
        unwatched = CASE WHEN excluded.started_at IS NOT DISTINCT FROM h.started_at THEN h.unwatched
                         ELSE (SELECT CASE WHEN g.until > g.since + make_interval(secs => greatest(0, least(60, 2 * h.beat_s)))
                                           THEN probing.with_gap(h.unwatched, tstzrange(g.since, g.until))
                                           ELSE h.unwatched END
                               FROM (SELECT probing.right_time(h.cluster, h.node, h.at, h.at, h.received_at) AS since,
                                            probing.right_time(h.cluster, h.node, excluded.started_at, excluded.at, now()) AS until) AS g)
                    END
$heartbeat$;
