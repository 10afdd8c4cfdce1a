-- probing.end_long_work: ends what agents, dashboards and operators leave open for longer than their group may, and whoever keeps
-- the service waiting. Role settings such as statement_timeout are defaults, which each role may change; this is not theirs to change.
-- Inputs   p_agent_s, p_reader_s, p_operator_s: how long a transaction of each group may last, seconds; p_blocking_s: how long
--          the service, or the owner, waits for a lock of theirs.
-- Output   one row per session ended: role_name, group_name, why ('too long' or 'in the way'), age_s (of its transaction).
-- The owner must see others' sessions and be able to end them: a superuser is, and so is a member of pg_read_all_stats and
-- pg_signal_backend. Where the owner may grant itself these, that is done here; elsewhere a superuser must.
DO $owner$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
       AND NOT (pg_has_role(current_user, 'pg_signal_backend', 'USAGE') AND pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')) THEN
        EXECUTE format('GRANT pg_signal_backend, pg_read_all_stats TO %I', current_user);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'sessions of agents that last too long are not ended: a superuser must GRANT pg_signal_backend, pg_read_all_stats TO %',
        current_user;
END
$owner$;

CREATE OR REPLACE FUNCTION probing.end_long_work(
    p_agent_s double precision, p_reader_s double precision, p_operator_s double precision, p_blocking_s double precision
) RETURNS TABLE (role_name text, group_name text, why text, age_s double precision)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $end$
DECLARE
    v_pid integer;
BEGIN
    -- Chosen first and ended then, one by one: in one query the planner may end before it chooses.
    FOR v_pid, role_name, group_name, why, age_s IN
    WITH session AS (
        SELECT a.pid, a.usename::text AS role_name, g.rolname::text AS group_name,
               extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS age_s,
               CASE g.rolname WHEN 'probing_agent' THEN p_agent_s WHEN 'probing_reader' THEN p_reader_s ELSE p_operator_s END AS most_s
        FROM pg_stat_activity a
        JOIN pg_auth_members m ON m.member = a.usesysid
        JOIN pg_roles g ON g.oid = m.roleid AND g.rolname IN ('probing_agent', 'probing_reader', 'probing_operator')
        WHERE a.datname = current_database() AND a.xact_start IS NOT NULL
          AND NOT pg_has_role(a.usesysid, 'probing_service', 'MEMBER')
    ), waiting AS (
        SELECT unnest(pg_blocking_pids(a.pid)) AS pid
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.wait_event_type = 'Lock'
          AND a.query_start < clock_timestamp() - make_interval(secs => p_blocking_s)
          AND (pg_has_role(a.usesysid, 'probing_service', 'MEMBER') OR a.usename = current_user)
    ), doomed AS (
        SELECT s.*, CASE WHEN s.age_s > s.most_s THEN 'too long' ELSE 'in the way' END AS why
        FROM session s
        WHERE s.age_s > s.most_s OR s.pid IN (SELECT w.pid FROM waiting w)
    )
    SELECT d.pid, d.role_name, d.group_name, d.why, d.age_s FROM doomed d
    LOOP
        IF pg_terminate_backend(v_pid) THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$end$;
REVOKE EXECUTE ON FUNCTION probing.end_long_work(double precision, double precision, double precision, double precision) FROM PUBLIC;
