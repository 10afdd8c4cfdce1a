-- The jobs' GPUs, as the Prologs recorded them.
-- Inputs   :cluster; :job_ids.
-- Output   every column of probing.job_allocation.
SELECT a.*
FROM probing.job_allocation a
WHERE a.cluster = :cluster AND a.job_id = ANY(:job_ids)
ORDER BY a.at, a.node
