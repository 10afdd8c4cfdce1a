-- The probe's progress events of some jobs: first steps, last steps and checkpoints.
-- inputs:  clusters text[]       the clusters of the jobs
--          job_ids  bigint[]
--          kinds    text[]       first_step, last_progress, checkpoint
--          since    timestamptz  first start among the jobs
--          until    timestamptz  last end among them; that instant belongs to it
-- output:  columns of probing.health_event
select *
from probing.health_event
where cluster = any(cast(:clusters as text[])) and job_id = any(cast(:job_ids as bigint[])) and source = 'probe' and kind = any(cast(:kinds as text[])) and at >= :since and at <= :until
order by at, event_id
