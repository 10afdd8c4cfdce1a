-- probing.deliver_batch: what many nodes have to say, in one call and one transaction: the door's way (docs/scale.md).
--
-- Inputs   p_roles: the agent's role of each delivery, as the certificate names it that the door has checked. p_loads: the delivery,
--          JSON text {events, checks, allocations, heartbeat, acks, refused, answers}, each left out where it is empty; fields as
--          probing.deliver's arguments have them, and answers as a list of {request_id, body in base64}.
-- Output   one answer per delivery, JSON text, in order: what probing.deliver answers, or {sqlstate, error}: then nothing of that
--          delivery is stored, and of the others everything is.
-- Only roles of probing_door may call it. Ordinary deliveries, events and a heartbeat that fit, are stored together; every other
-- one goes through probing.deliver by itself, in a subtransaction of its own.
CREATE OR REPLACE FUNCTION probing.deliver_batch(p_roles text[], p_loads text[]) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET lock_timeout = '2s' -- a node may deliver by itself, too, and leave that transaction open: its rows then wait, and not the batch
AS $batch$
DECLARE
    c_nothing CONSTANT text := '{"accepted": 0, "duplicates": 0, "rejected": 0, "requests": []}';
    v_answers text[];
    v_one record;
    v_sync text := current_setting('synchronous_commit');
    v_beats boolean; -- heartbeats and nothing else
BEGIN
    IF cardinality(p_roles) IS DISTINCT FROM cardinality(p_loads) OR cardinality(p_roles) > 1000 THEN
        RAISE EXCEPTION 'a batch is as many roles as deliveries, at most 1000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    BEGIN
        v_answers := probing.deliver_ordinary(p_roles, p_loads);
    EXCEPTION WHEN OTHERS THEN
        RAISE LOG 'probing: a batch of % deliveries goes one by one: %', cardinality(p_roles), SQLERRM;
        v_answers := array_fill(NULL::text, ARRAY[cardinality(p_roles)]); -- whose fault it was, each finds out alone
    END;
    v_beats := NOT EXISTS (SELECT FROM unnest(v_answers) AS answer WHERE answer IS DISTINCT FROM c_nothing);
    FOR v_one IN
        SELECT u.n::integer AS n, u.role, u.load
        FROM unnest(p_roles, p_loads, v_answers) WITH ORDINALITY AS u(role, load, answer, n)
        WHERE u.answer IS NULL
        ORDER BY u.role, u.n -- in one order, so that two batches wait for each other instead of deadlocking
    LOOP
        BEGIN
            v_answers[v_one.n] := probing.deliver_load(v_one.role, v_one.load::jsonb)::text;
        EXCEPTION WHEN OTHERS THEN
            v_answers[v_one.n] := jsonb_build_object('sqlstate', SQLSTATE, 'error', left(SQLERRM, 500))::text;
        END;
    END LOOP;
    -- Heartbeats alone need not wait for the disk, as in probing.deliver; one among other rows must not let those go unsynced.
    PERFORM set_config('synchronous_commit', CASE WHEN v_beats THEN 'off' ELSE v_sync END, true);
    RETURN v_answers;
END
$batch$;

-- The answers of those deliveries of a batch that could be stored together; null where one has to go by itself.
CREATE OR REPLACE FUNCTION probing.deliver_ordinary(p_roles text[], p_loads text[]) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_nestloop = on -- a few nodes of thousands, by the tables' keys
AS $ordinary$
DECLARE
    v_loads jsonb[];
    v_clusters text[];
    v_nodes text[];
    v_n bigint[];        -- of each event: which delivery brought it
    v_given bigint[];    -- of each delivery: how many events
    v_accepted bigint[]; -- of each delivery: how many were new
    e_event_id uuid[];
    e_at timestamptz[];
    e_observed_at timestamptz[];
    e_kind text[];
    e_code text[];
    e_severity text[];
    e_device text[];
    e_pci_bus_id text[];
    e_gpu_uuid text[];
    e_pid bigint[];
    e_process text[];
    e_job_id bigint[];
    e_count bigint[];
    e_last_at timestamptz[];
    e_source text[];
    e_message text[];
    e_measured double precision[];
    e_threshold double precision[];
    e_unit text[];
    e_detail text[];
    v_fresh uuid[];
    v_fresh_at timestamptz[];
    v_new boolean[];     -- of each event: it was new
    v_beyond text;       -- a role whose quota is spent
BEGIN
    -- Null in v_loads is a delivery that goes by itself: of no known node, not its node's first here, with more than events and a
    -- heartbeat, long, with a row that does not fit, of a node that is asked something, or with a heartbeat that comes faster than an
    -- agent's own pace, which probing.deliver counts against the node's quota.
    SELECT array_agg(CASE WHEN x.ordinary THEN x.load END ORDER BY x.n), array_agg(x.cluster ORDER BY x.n), array_agg(x.node ORDER BY x.n)
    INTO v_loads, v_clusters, v_nodes
    FROM (
        SELECT u.n, a.cluster, a.node, j.load,
               (a.node IS NOT NULL AND u.nth = 1 AND length(u.text) <= 65536
                AND jsonb_typeof(j.load) = 'object' AND j.load - '{events,heartbeat}'::text[] = '{}'
                AND (NOT j.load ? 'heartbeat' OR probing.wrong_row('heartbeat', j.load -> 'heartbeat') IS NULL)
                AND NOT EXISTS (
                    SELECT FROM jsonb_to_recordset(coalesce(j.load -> 'events', '[]')) AS e(
                        cluster text, node text, event_id uuid, at timestamptz, severity text, kind text, source text, detail text)
                    WHERE (e.cluster = a.cluster AND e.node = a.node
                           AND probing.is_event(e.event_id, e.at, e.severity, e.kind, e.source, e.detail)) IS NOT TRUE)
                AND NOT EXISTS (
                    SELECT FROM probing.node_request q
                    WHERE q.cluster = a.cluster AND q.node = a.node AND q.acknowledged_at IS NULL AND q.expires_at > now())
                AND NOT (j.load ? 'heartbeat' AND a.rows_per_hour IS NOT NULL AND EXISTS (
                    SELECT FROM probing.agent_heartbeat h
                    WHERE h.cluster = a.cluster AND h.node = a.node AND h.received_at > now() - interval '1 second'))
               ) IS TRUE AS ordinary
        FROM (SELECT g.role, g.text, g.n, row_number() OVER (PARTITION BY g.role ORDER BY g.n) AS nth
              FROM unnest(p_roles, p_loads) WITH ORDINALITY AS g(role, text, n)) AS u
        LEFT JOIN probing.agent_role a ON a.role_name = u.role
        CROSS JOIN LATERAL (SELECT u.text::jsonb AS load) AS j
    ) AS x;

    SELECT array_agg(l.n), array_agg(e.event_id), array_agg(e.at), array_agg(e.observed_at), array_agg(e.kind), array_agg(e.code),
           array_agg(e.severity), array_agg(e.device), array_agg(e.pci_bus_id), array_agg(e.gpu_uuid), array_agg(e.pid),
           array_agg(e.process), array_agg(e.job_id), array_agg(e.count), array_agg(e.last_at), array_agg(e.source),
           array_agg(e.message), array_agg(e.measured), array_agg(e.threshold), array_agg(e.unit), array_agg(e.detail)
    INTO v_n, e_event_id, e_at, e_observed_at, e_kind, e_code, e_severity, e_device, e_pci_bus_id, e_gpu_uuid, e_pid,
         e_process, e_job_id, e_count, e_last_at, e_source, e_message, e_measured, e_threshold, e_unit, e_detail
    FROM unnest(v_loads) WITH ORDINALITY AS l(load, n)
    CROSS JOIN LATERAL jsonb_to_recordset(coalesce(l.load -> 'events', '[]')) AS e(
        event_id uuid, at timestamptz, observed_at timestamptz, kind text, code text, severity text, device text, pci_bus_id text,
        gpu_uuid text, pid bigint, process text, job_id bigint, count bigint, last_at timestamptz, source text, message text,
        measured double precision, threshold double precision, unit text, detail text);

    IF v_n IS NOT NULL THEN
        WITH fresh AS (
            INSERT INTO probing.event_key (event_id, at)
            SELECT u.event_id, u.at FROM unnest(e_event_id, e_at) AS u(event_id, at) ORDER BY u.event_id
            ON CONFLICT (event_id) DO NOTHING
            RETURNING event_id, at
        )
        SELECT coalesce(array_agg(event_id), '{}'), coalesce(array_agg(at), '{}') INTO v_fresh, v_fresh_at FROM fresh;
        -- A row given twice is taken where it stands first.
        SELECT array_agg(x.is_new ORDER BY x.n) INTO v_new
        FROM (
            SELECT g.n, f.event_id IS NOT NULL AND row_number() OVER (PARTITION BY g.event_id, g.at ORDER BY g.n) = 1 AS is_new
            FROM unnest(e_event_id, e_at) WITH ORDINALITY AS g(event_id, at, n)
            LEFT JOIN unnest(v_fresh, v_fresh_at) AS f(event_id, at) USING (event_id, at)
        ) AS x;
        INSERT INTO probing.health_event (
            event_id, cluster, node, at, observed_at, kind, code, severity, device, pci_bus_id, gpu_uuid,
            pid, process, job_id, count, last_at, source, message, measured, threshold, unit, detail
        )
        SELECT u.event_id, v_clusters[v_n[u.n]], v_nodes[v_n[u.n]], u.at, u.observed_at, u.kind, u.code, u.severity, u.device,
            u.pci_bus_id, u.gpu_uuid, u.pid, u.process, u.job_id, u.count, u.last_at, u.source, u.message, u.measured, u.threshold,
            u.unit, u.detail
        FROM probing.shortened_events(
            e_event_id, e_at, e_observed_at, e_kind, e_code, e_severity, e_device, e_pci_bus_id, e_gpu_uuid, e_pid,
            e_process, e_job_id, e_count, e_last_at, e_source, e_message, e_measured, e_threshold, e_unit, e_detail
        ) AS u
        WHERE v_new[u.n];
        INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
        SELECT v_clusters[u.n], v_nodes[u.n], min(u.at), max(u.at), count(*)
        FROM unnest(v_n, e_at, v_new) AS u(n, at, is_new)
        WHERE u.is_new
        GROUP BY u.n;
    END IF;
    SELECT array_agg(x.given ORDER BY x.n), array_agg(x.accepted ORDER BY x.n) INTO v_given, v_accepted
    FROM (
        SELECT l.n, count(u.n) AS given, count(u.n) FILTER (WHERE u.is_new) AS accepted
        FROM generate_subscripts(v_loads, 1) AS l(n)
        LEFT JOIN unnest(v_n, v_new) AS u(n, is_new) ON u.n = l.n
        GROUP BY l.n
    ) AS x;

    -- Each node's quota, as in probing.deliver: every 4 KiB beyond the first counts as another row. A node beyond its own makes the
    -- whole batch go one by one, and is then refused alone.
    WITH counted AS (
        INSERT INTO probing.intake AS i (role_name, hour, n_rows)
        SELECT u.role, date_trunc('hour', now()), u.accepted + octet_length(u.text) / 4096
        FROM unnest(p_roles, p_loads, v_accepted) AS u(role, text, accepted)
        JOIN probing.agent_role a ON a.role_name = u.role
        WHERE u.accepted > 0 AND a.rows_per_hour IS NOT NULL
        ORDER BY u.role
        ON CONFLICT (role_name, hour) DO UPDATE SET n_rows = i.n_rows + excluded.n_rows
        RETURNING i.role_name, i.n_rows
    )
    SELECT min(c.role_name) INTO v_beyond FROM counted c JOIN probing.agent_role a USING (role_name) WHERE c.n_rows > a.rows_per_hour;
    IF v_beyond IS NOT NULL THEN
        RAISE EXCEPTION '% has delivered more than its quota', v_beyond USING ERRCODE = 'configuration_limit_exceeded';
    END IF;

    PERFORM probing.deliver_heartbeats(array_agg(u.cluster), array_agg(u.node), array_agg(
        (u.load -> 'heartbeat') || jsonb_build_object('ranks', probing.fit_ranks(coalesce(u.load -> 'heartbeat' -> 'ranks', '{}')))))
    FROM unnest(v_clusters, v_nodes, v_loads) AS u(cluster, node, load)
    WHERE u.load ? 'heartbeat'
    HAVING count(*) > 0;

    RETURN (
        SELECT array_agg(
            CASE WHEN u.load IS NOT NULL THEN
                format('{"accepted": %s, "duplicates": %s, "rejected": 0, "requests": []}', u.accepted, u.given - u.accepted)
            END ORDER BY u.n)
        FROM unnest(v_loads, v_given, v_accepted) WITH ORDINALITY AS u(load, given, accepted, n)
    );
END
$ordinary$;

-- One delivery of a batch through the agents' own door, as the role that the certificate names.
CREATE OR REPLACE FUNCTION probing.deliver_load(p_role text, p_load jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $load$
DECLARE
    v_answer jsonb;
BEGIN
    IF jsonb_typeof(p_load) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'a delivery is a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM set_config('probing.speaks_for', p_role, true);
    SELECT probing.deliver(
        p_cluster => '', p_node => '',
        e_event_id => coalesce(array_agg(e.event_id), '{}'), e_cluster => array_agg(e.cluster), e_node => array_agg(e.node),
        e_at => array_agg(e.at), e_observed_at => array_agg(e.observed_at), e_kind => array_agg(e.kind), e_code => array_agg(e.code),
        e_severity => array_agg(e.severity), e_device => array_agg(e.device), e_pci_bus_id => array_agg(e.pci_bus_id),
        e_gpu_uuid => array_agg(e.gpu_uuid), e_pid => array_agg(e.pid), e_process => array_agg(e.process),
        e_job_id => array_agg(e.job_id), e_count => array_agg(e.count), e_last_at => array_agg(e.last_at),
        e_source => array_agg(e.source), e_message => array_agg(e.message), e_measured => array_agg(e.measured),
        e_threshold => array_agg(e.threshold), e_unit => array_agg(e.unit), e_detail => array_agg(e.detail),
        p_checks => p_load -> 'checks', p_allocations => p_load -> 'allocations', p_heartbeat => nullif(p_load -> 'heartbeat', 'null'),
        p_acks => ARRAY(SELECT a::uuid FROM jsonb_array_elements_text(coalesce(p_load -> 'acks', '[]')) AS a),
        p_refused => p_load -> 'refused',
        p_answered => ARRAY(
            SELECT (a.one ->> 'request_id')::uuid
            FROM jsonb_array_elements(coalesce(p_load -> 'answers', '[]')) WITH ORDINALITY AS a(one, n) ORDER BY a.n),
        p_answers => ARRAY(
            SELECT decode(a.one ->> 'body', 'base64')
            FROM jsonb_array_elements(coalesce(p_load -> 'answers', '[]')) WITH ORDINALITY AS a(one, n) ORDER BY a.n)
    ) INTO v_answer
    FROM jsonb_to_recordset(coalesce(p_load -> 'events', '[]')) AS e(
        event_id uuid, cluster text, node text, at timestamptz, observed_at timestamptz, kind text, code text, severity text,
        device text, pci_bus_id text, gpu_uuid text, pid bigint, process text, job_id bigint, count bigint, last_at timestamptz,
        source text, message text, measured double precision, threshold double precision, unit text, detail text);
    RETURN v_answer;
END
$load$;
