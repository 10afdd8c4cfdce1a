-- Takes away what was stored of a test job of ours as if it were a user's attempt.
-- inputs:  cluster text, job_id bigint, submit_at timestamptz: the attempt; run_key text, "user" text: of its run
-- output:  none
with verdicts as (
    delete from probing.verdict where cluster = :cluster and job_id = :job_id and submit_at = :submit_at
),
accounts as (
    delete from probing.run_account where cluster = :cluster and run_key = :run_key and "user" = :user
)
delete from probing.job_attempt where cluster = :cluster and job_id = :job_id and submit_at = :submit_at
