-- Judged attempts that were preempted by a later start of some attempts' jobs: their verdicts tell of what those ended by.
-- Inputs   :cluster; :job_ids, :submits  parallel arrays: the attempts whose verdict has changed.
--          :near_s  who starts within so many seconds of a preemption may have caused it.
-- Output   cluster, job_id, submit_at.
-- OFFSET 0: by time, which is minutes, not by node, which is years.
SELECT DISTINCT p.cluster, p.job_id, p.submit_at
FROM unnest(CAST(:job_ids AS bigint[]), CAST(:submits AS timestamptz[])) AS c(job_id, submit_at)
JOIN probing.job_attempt b ON b.cluster = :cluster AND b.job_id = c.job_id AND b.submit_at = c.submit_at AND b.state <> 'PREEMPTED'
JOIN probing.job_attempt s ON s.cluster = b.cluster AND s.job_id = b.job_id AND s.attempt > b.attempt
CROSS JOIN LATERAL (
    SELECT a.cluster, a.job_id, a.submit_at, a.nodes
    FROM probing.job_attempt a
    WHERE a.end_at BETWEEN s.start_at - make_interval(secs => :near_s) AND s.start_at + interval '1 second'
      AND a.state = 'PREEMPTED' AND a.judged_at IS NOT NULL
    OFFSET 0
) p
WHERE p.cluster = s.cluster AND p.nodes && s.nodes
