-- Which of some jobs tests of nodes ran in, and when.
-- inputs:  cluster text, jobs bigint[]
-- output:  job_id bigint, began_at timestamptz, until_at timestamptz: from the first test's start to the last one's end
select
    job_id,
    min(at - make_interval(secs => duration_s)) as began_at,
    max(at) as until_at
from probing.diagnostic_result
where cluster = :cluster and job_id = any(:jobs)
group by job_id, round_id
