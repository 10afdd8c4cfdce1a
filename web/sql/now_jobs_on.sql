-- Whose the jobs are that run on nodes with something to say.
-- Inputs   job_ids.
SELECT DISTINCT ON (a.job_id) a.job_id, a."user", a.account, a.name, a.state
FROM probing.job_attempt a
WHERE a.job_id = ANY (:job_ids) AND a.end_at IS NULL
ORDER BY a.job_id, a.submit_at DESC
