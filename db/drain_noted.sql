-- What was done to a node or about a job is evidence, as what happened there is: each drain, and its outcome, is noted as late.
-- Inputs   rows of probing.drain, as they come in or change their state, whoever writes them.
-- Output   rows of probing.arrival: the node then, and the ends of the job's attempts that have their verdicts already.
CREATE OR REPLACE FUNCTION probing.note_drain() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $note$
BEGIN
    INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
    SELECT new.cluster, new.node, new.at, new.at, 0
    UNION ALL
    SELECT a.cluster, a.nodes[1], a.end_at, a.end_at, 0
    FROM probing.job_attempt a
    WHERE a.cluster = new.cluster AND a.job_id = new.job_id AND a.judged_at IS NOT NULL AND a.nodes <> '{}';
    RETURN NULL;
END
$note$;
REVOKE EXECUTE ON FUNCTION probing.note_drain() FROM PUBLIC;

CREATE OR REPLACE TRIGGER drain_noted AFTER INSERT OR UPDATE OF state ON probing.drain
FOR EACH ROW EXECUTE FUNCTION probing.note_drain();
