-- The group roles of a site, made where missing. Login roles are members of exactly one of them.
-- Inputs: none. Roles belong to the whole server, so another database of ours may have made them.
DO $roles$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['probing_agent', 'probing_service', 'probing_reader', 'probing_operator', 'probing_door'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- another migration of this server was faster
        END;
    END LOOP;
END
$roles$;
