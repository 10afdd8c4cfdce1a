-- Who may do what: grants to the group roles and row-level security. Applied anew whenever it changes.
-- Inputs   the group roles of roles.sql; probing.reader_scope for dashboards.
-- Agents may call one function and nothing else. The service writes rows but owns nothing. Operators
-- read all, and write what a person says, under their login role's own name. Readers see what reader_scope
-- gives their own login role: session_user, which no SET changes.

REVOKE ALL ON SCHEMA probing FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA probing FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA probing FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;

DO $database$
BEGIN
    -- Temporary tables are a way to fill the disk.
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO probing_service', current_database());
    -- So are large objects and messages in the log of writes; and whoever takes advisory locks by the thousand fills the server's
    -- one table of locks, and nobody else gets any. Only a superuser may close these doors.
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE (
            SELECT string_agg(format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', p.oid::regprocedure), '; ')
            FROM pg_proc p
            WHERE p.pronamespace = 'pg_catalog'::regnamespace
              AND (p.proname IN ('lo_creat', 'lo_create', 'lo_from_bytea', 'lo_put', 'lowrite', 'lo_open', 'lo_truncate', 'lo_truncate64',
                                 'pg_logical_emit_message')
                   OR p.proname LIKE 'pg\_advisory\_%' OR p.proname LIKE 'pg\_try\_advisory\_%')
        );
        -- Many people share one login of ours, the web's and each dashboard's: what one of them asks is no other's to read or to end.
        -- (Whoever may look at or end others' sessions by a role of PostgreSQL's own still may.)
        EXECUTE (
            SELECT string_agg(format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC; '
                                     'GRANT EXECUTE ON FUNCTION %1$s TO probing_service, probing_operator, %s',
                                     p.oid::regprocedure,
                                     CASE WHEN p.proname LIKE 'pg\_stat%' THEN 'pg_monitor, pg_read_all_stats'
                                          ELSE 'pg_signal_backend' END), '; ')
            FROM pg_proc p
            WHERE p.pronamespace = 'pg_catalog'::regnamespace
              AND p.proname IN ('pg_terminate_backend', 'pg_cancel_backend', 'pg_stat_get_activity', 'pg_stat_get_backend_activity')
        );
    END IF;
END
$database$;

-- What a login role of probing_reader may read, as arrays that a policy evaluates once per query.
CREATE OR REPLACE FUNCTION probing.readable(p_kind text) RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $readable$
    SELECT coalesce(array_agg(r.value), '{}') FROM (
        SELECT s.value FROM probing.reader_scope s WHERE s.role_name = session_user AND s.kind = p_kind
        UNION ALL
        -- The web server's login has no scope of its own: it sees what the person's key gives whose proof the transaction carries.
        SELECT v.value
        FROM probing.web_key k
        CROSS JOIN LATERAL unnest(
            CASE WHEN k.operator AND p_kind = 'cluster' THEN ARRAY['*']
                 WHEN p_kind = 'user' THEN ARRAY[k.user_name]
                 WHEN p_kind = 'account' THEN k.accounts ELSE '{}' END
        ) AS v(value)
        WHERE k.key_hash = encode(sha256(convert_to(current_setting('probing.web_proof', true), 'UTF8')), 'hex')
          AND k.kind IN ('session', 'token') AND k.expires_at > now()
          AND EXISTS (SELECT FROM probing.reader_scope w WHERE w.role_name = session_user AND w.kind = 'web')
    ) AS r
$readable$;
COMMENT ON FUNCTION probing.readable(text) IS 'The clusters, accounts or users that the login role may read; * = every one.';
REVOKE ALL ON FUNCTION probing.readable(text) FROM PUBLIC;

DO $policies$
DECLARE
    t record;
    of_cluster text := '(cluster = ANY ((SELECT probing.readable(''cluster''))::text[]) OR ''*'' = ANY ((SELECT probing.readable(''cluster''))::text[]))';
    of_account text := '(account = ANY ((SELECT probing.readable(''account''))::text[]) OR ''*'' = ANY ((SELECT probing.readable(''account''))::text[]))';
    of_user text := '("user" = ANY ((SELECT probing.readable(''user''))::text[]) OR ''*'' = ANY ((SELECT probing.readable(''user''))::text[]))';
    seen_attempt text := 'EXISTS (SELECT FROM probing.job_attempt a WHERE a.cluster = verdict.cluster AND a.job_id = verdict.job_id AND a.submit_at = verdict.submit_at)';
    rule text;
BEGIN
    FOR t IN
        SELECT c.relname AS name,
               EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'cluster') AS has_cluster
        FROM pg_class c
        WHERE c.relnamespace = 'probing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    LOOP
        EXECUTE format('ALTER TABLE probing.%I ENABLE ROW LEVEL SECURITY', t.name);
        EXECUTE format('DROP POLICY IF EXISTS everything ON probing.%I', t.name);
        EXECUTE format(
            'CREATE POLICY everything ON probing.%I TO probing_service USING (true) WITH CHECK (true)', t.name);
        EXECUTE format('DROP POLICY IF EXISTS reading ON probing.%I', t.name);
        EXECUTE format('CREATE POLICY reading ON probing.%I FOR SELECT TO probing_operator USING (true)', t.name);
        EXECUTE format('DROP POLICY IF EXISTS scoped ON probing.%I', t.name);
        rule := CASE t.name
            WHEN 'job_attempt' THEN concat_ws(' OR ', of_cluster, of_account, of_user)
            WHEN 'run_account' THEN concat_ws(' OR ', of_cluster, of_user)
            WHEN 'verdict' THEN concat_ws(' OR ', of_cluster, seen_attempt)
            WHEN 'gang_verdict' THEN concat_ws(' OR ', of_cluster, replace(seen_attempt, '= verdict.', '= gang_verdict.'))
            WHEN 'agent_role' THEN 'false'
            ELSE of_cluster
        END;
        IF t.has_cluster THEN
            EXECUTE format('CREATE POLICY scoped ON probing.%I FOR SELECT TO probing_reader USING (%s)', t.name, rule);
        END IF;
    END LOOP;
END
$policies$;
-- What an operator may write, each bounded by its policy; the columns are in the grants below.
DROP POLICY IF EXISTS own_words ON probing.operator_note;
CREATE POLICY own_words ON probing.operator_note FOR INSERT TO probing_operator WITH CHECK (author = session_user AND at BETWEEN '1970-01-01' AND '9000-01-01');
-- A verdict of their own, which takes the place of the current one: the one before stays, and says when it was replaced.
DROP POLICY IF EXISTS own_verdict ON probing.verdict;
CREATE POLICY own_verdict ON probing.verdict FOR INSERT TO probing_operator
    WITH CHECK (author = session_user AND author <> 'rules' AND superseded_at IS NULL
                -- What every reader of it can read.
                AND domain IN ('hardware', 'system_software', 'user_program', 'unknown')
                AND confidence IN ('certain', 'likely', 'possible', 'unknown')
                AND made_at BETWEEN '1970-01-01' AND '9000-01-01' AND coalesce(onset_at, made_at) BETWEEN '1970-01-01' AND '9000-01-01'
                AND coalesce(window_start_at, made_at) BETWEEN '1970-01-01' AND '9000-01-01' AND coalesce(window_end_at, made_at) BETWEEN '1970-01-01' AND '9000-01-01'
                AND length(summary) <= 4096 AND length(next_step) <= 4096 AND length(cause) <= 200 AND length(coalesce(place, '')) <= 4096
                AND pg_column_size(ruled_out) <= 8192 AND cardinality(evidence) <= 1000);
DROP POLICY IF EXISTS replacing ON probing.verdict;
CREATE POLICY replacing ON probing.verdict FOR UPDATE TO probing_operator
    USING (superseded_at IS NULL) WITH CHECK (superseded_at IS NOT NULL);
DROP POLICY IF EXISTS judging ON probing.job_attempt;
CREATE POLICY judging ON probing.job_attempt FOR UPDATE TO probing_operator USING (true) WITH CHECK (judged_at IS NOT NULL);
-- Drains made by hand, and that one was lifted; never a decision of the policy's, which has events and refuses or requeues.
DROP POLICY IF EXISTS own_drain ON probing.drain;
CREATE POLICY own_drain ON probing.drain FOR INSERT TO probing_operator
    WITH CHECK (owner = session_user AND owner <> 'probing' AND action = 'drain' AND event_ids = '{}');
DROP POLICY IF EXISTS outcome ON probing.drain;
CREATE POLICY outcome ON probing.drain FOR UPDATE TO probing_operator
    -- One lifted this minute may be the operator's own act, which the service saw first.
    USING (action = 'drain' AND (owner = session_user OR state = 'done' OR ended_at > now() - interval '1 minute'))
    WITH CHECK (action = 'drain' AND (owner = session_user OR state = 'resumed'));
-- To look again, to collect and to read a job's tables; a permission to refuse jobs is the service's alone.
DROP POLICY IF EXISTS asking ON probing.node_request;
CREATE POLICY asking ON probing.node_request FOR INSERT TO probing_operator
    -- Within a day, and of a size that an agent is handed.
    WITH CHECK (verb IN ('collect', 'recheck', 'ask') AND isfinite(expires_at) AND expires_at <= now() + interval '1 day'
                AND jsonb_typeof(detail) = 'object' AND pg_column_size(detail) <= 8192
                -- A question is one about tables, under the asker's own name, and for minutes.
                AND (verb <> 'ask' OR (probing.is_question(detail) AND detail ->> 'by' = session_user
                                       AND job_id IS NOT NULL AND expires_at <= now() + interval '10 minutes')));

-- What a test found that they ran by hand. Taking a repair over, giving it back or ending it is a note.
DROP POLICY IF EXISTS own_tests ON probing.diagnostic_result;
CREATE POLICY own_tests ON probing.diagnostic_result FOR INSERT TO probing_operator WITH CHECK (incident_id IS NULL);

GRANT USAGE ON SCHEMA probing TO probing_agent, probing_service, probing_operator, probing_reader, probing_door;
GRANT USAGE ON SCHEMA ops TO probing_service, probing_operator, probing_reader;

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA probing TO probing_service;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA probing TO probing_service;
REVOKE INSERT, UPDATE, DELETE ON probing.alembic_version, probing.agent_role, probing.reader_scope FROM probing_service;
GRANT SELECT ON ALL TABLES IN SCHEMA probing, ops TO probing_operator;
-- Who is logged in to the web, and what they asked of it, is the web server's business.
REVOKE SELECT ON probing.web_key, probing.web_request FROM probing_operator;
GRANT INSERT ON probing.operator_note, probing.verdict, probing.drain, probing.node_request TO probing_operator;
GRANT INSERT ON probing.diagnostic_result TO probing_operator;
GRANT UPDATE (superseded_at) ON probing.verdict TO probing_operator;
GRANT UPDATE (judged_at) ON probing.job_attempt TO probing_operator;
GRANT UPDATE (state, why_state, ended_at) ON probing.drain TO probing_operator;
GRANT SELECT ON ALL TABLES IN SCHEMA ops TO probing_service, probing_reader;
GRANT SELECT ON
    probing.health_event, probing.check_now, probing.check_result, probing.job_attempt, probing.verdict,
    probing.gang_verdict, probing.run_account, probing.lemon_score, probing.drain, probing.slurm_drain, probing.agent_heartbeat, probing.node_request, probing.operator_note, probing.node_place,
    probing.diagnostic_result, probing.repair_incident, probing.job_allocation
    TO probing_reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ops TO probing_service, probing_operator, probing_reader;
GRANT EXECUTE ON FUNCTION probing.readable(text), probing.listening(), probing.exported_until(), probing.over_time_limit(), probing.ran_until(probing.job_attempt), probing.beyond_limit(probing.job_attempt), probing.job_ref(probing.job_attempt),
    probing.is_prolog_of(timestamptz, timestamptz, timestamptz)
    TO probing_service, probing_operator, probing_reader;
GRANT EXECUTE ON FUNCTION probing.is_question(jsonb), probing.right_time(text, text, timestamptz, timestamptz, timestamptz),
    probing.back_from_repair(text, text, text, timestamptz) TO probing_service, probing_operator;
GRANT EXECUTE ON FUNCTION probing.make_month(date), probing.drop_month(date) TO probing_service;
GRANT EXECUTE ON FUNCTION probing.end_long_work(double precision, double precision, double precision, double precision)
    TO probing_service;

-- The door speaks for every node that has a role, through the batches alone.
GRANT EXECUTE ON FUNCTION probing.deliver_batch(text[], text[]) TO probing_door;

DO $deliver$
BEGIN
    EXECUTE (
        SELECT format('GRANT EXECUTE ON FUNCTION %s TO probing_agent, probing_service', p.oid::regprocedure)
        FROM pg_proc p WHERE p.pronamespace = 'probing'::regnamespace AND p.proname = 'deliver'
    );
END
$deliver$;
