-- probing.make_month, probing.drop_month: the two changes of shape that the service's role may make.
-- Inputs   p_month  any day of the month meant.
-- Output   true when something was made or dropped. Both give up on a lock after 3 s, since every
--          delivery would queue behind a longer wait.
CREATE OR REPLACE FUNCTION probing.make_month(p_month date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET lock_timeout = '3s'
AS $make$
DECLARE
    v_from timestamptz := date_trunc('month', p_month::timestamp)::timestamptz;
    v_to timestamptz := (date_trunc('month', p_month::timestamp) + interval '1 month')::timestamptz;
    v_name text := 'health_event_' || to_char(p_month, 'YYYY_MM');
BEGIN
    IF to_regclass('probing.' || v_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Attaching needs the DEFAULT partition free of the month's rows; nobody may add one meanwhile.
    LOCK TABLE probing.health_event_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE probing.%I (LIKE probing.health_event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name);
    EXECUTE format(
        'WITH moved AS (DELETE FROM probing.health_event_default WHERE at >= %L AND at < %L RETURNING *) '
        'INSERT INTO probing.%I SELECT * FROM moved', v_from, v_to, v_name);
    EXECUTE format(
        'ALTER TABLE probing.health_event ATTACH PARTITION probing.%I FOR VALUES FROM (%L) TO (%L)', v_name, v_from, v_to);
    RETURN true;
END
$make$;

CREATE OR REPLACE FUNCTION probing.drop_month(p_month date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '3s'
AS $drop$
DECLARE
    v_name text := 'health_event_' || to_char(p_month, 'YYYY_MM');
BEGIN
    IF to_regclass('probing.' || v_name) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE probing.%I', v_name);
    RETURN true;
END
$drop$;
