-- Attempts that ran on some nodes in a span, whoever owns them.
-- Inputs   :cluster; :nodes; :since, :until.
-- Output   every column of probing.job_attempt.
SELECT a.*
FROM probing.job_attempt a
WHERE a.cluster = :cluster
  AND a.nodes && CAST(:nodes AS text[])
  AND a.start_at < :until
  AND (a.end_at IS NULL OR a.end_at > :since)
ORDER BY a.submit_at, a.job_id
