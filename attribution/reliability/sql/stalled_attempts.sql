-- Since when attempts that hung had made no progress when they ended, by their current verdicts.
-- inputs:  job_ids  bigint[]
-- output:  cluster text, job_id bigint, submit_at timestamptz, stalled_at timestamptz
select cluster, job_id, submit_at, stalled_at
from probing.verdict
where stalled_at is not null and superseded_at is null and job_id = any(cast(:job_ids as bigint[]))
