-- The preempted tell why the job that took their place had to start again: a new verdict on that job's earlier start is late
-- evidence for them.
-- Inputs   rows of probing.verdict, as they come in, whoever writes them: the rules or a person.
-- Output   rows of probing.arrival: a node and the end of each attempt preempted by a later start of those jobs, judged already.
-- Who starts within a quarter of an hour of a preemption (attribution's NEAR) may have caused it.
-- Noted, not re-opened at once: whoever stores verdicts locks attempts in the order of their keys.
-- OFFSET 0: by time, which is minutes, not by node, which is years.
CREATE OR REPLACE FUNCTION probing.note_displaced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_hashjoin = off SET enable_mergejoin = off -- each by its key: a plan kept from a large batch would read the whole table
AS $note$
BEGIN
    INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
    SELECT DISTINCT p.cluster, p.nodes[1], p.end_at, p.end_at, 0
    FROM fresh c
    JOIN probing.job_attempt b USING (cluster, job_id, submit_at)
    JOIN probing.job_attempt s ON s.cluster = b.cluster AND s.job_id = b.job_id AND s.attempt > b.attempt
    CROSS JOIN LATERAL (
        SELECT a.cluster, a.end_at, a.nodes
        FROM probing.job_attempt a
        WHERE a.end_at BETWEEN s.start_at - interval '15 minutes' AND s.start_at + interval '1 second'
          AND a.state = 'PREEMPTED' AND a.judged_at IS NOT NULL
        OFFSET 0
    ) p
    WHERE c.superseded_at IS NULL AND b.state <> 'PREEMPTED' AND p.cluster = s.cluster AND p.nodes && s.nodes;
    RETURN NULL;
END
$note$;
REVOKE EXECUTE ON FUNCTION probing.note_displaced() FROM PUBLIC;

CREATE OR REPLACE TRIGGER displaced_noted AFTER INSERT ON probing.verdict
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION probing.note_displaced();
