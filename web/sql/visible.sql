-- Whether the viewer's key shows the attempts of a job: no row where it does not.
-- Inputs   cluster, job_id.
SELECT 1 AS yes FROM probing.job_attempt a WHERE a.cluster = %(cluster)s AND a.job_id = %(job_id)s LIMIT 1
