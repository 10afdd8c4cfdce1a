-- The preempted tell why the job that took their place had to start again: a new verdict on that job's earlier start is late
-- evidence for them.
-- Inputs   %(cluster)b, %(job_id)b, %(submit_at)b  parallel arrays: the attempts whose verdict has changed.
-- Output   rows of probing.arrival: a node and the end of each attempt preempted by a later start of those jobs, judged already.
-- Who starts within a quarter of an hour of a preemption (attribution's NEAR) may have caused it.
-- Noted, not re-opened at once: whoever stores verdicts locks attempts in the order of their keys.
-- OFFSET 0: by time, which is minutes, not by node, which is years.
INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
SELECT DISTINCT p.cluster, p.nodes[1], p.end_at, p.end_at, 0
FROM unnest(%(cluster)b::text[], %(job_id)b::bigint[], %(submit_at)b::timestamptz[]) AS c(cluster, job_id, submit_at)
JOIN probing.job_attempt b USING (cluster, job_id, submit_at)
JOIN probing.job_attempt s ON s.cluster = b.cluster AND s.job_id = b.job_id AND s.attempt > b.attempt
CROSS JOIN LATERAL (
    SELECT a.cluster, a.end_at, a.nodes
    FROM probing.job_attempt a
    WHERE a.end_at BETWEEN s.start_at - interval '15 minutes' AND s.start_at + interval '1 second'
      AND a.state = 'PREEMPTED' AND a.judged_at IS NOT NULL
    OFFSET 0
) p
WHERE b.state <> 'PREEMPTED' AND p.cluster = s.cluster AND p.nodes && s.nodes
