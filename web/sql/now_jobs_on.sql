-- Whose the jobs are that agents tell of on nodes with something to say, and where the latest attempt of each runs.
-- Inputs   cluster, job_ids.
-- Output   on_nodes: where it runs; empty when it waits or has ended.
SELECT DISTINCT ON (a.job_id) a.job_id, probing.job_ref(a) AS ref, a."user", a.account, a.name, a.state,
    CASE WHEN a.start_at IS NOT NULL AND a.end_at IS NULL THEN a.nodes ELSE '{}' END AS on_nodes
FROM probing.job_attempt a
WHERE a.job_id = ANY (:job_ids) AND a.cluster = :cluster
ORDER BY a.job_id, a.submit_at DESC
