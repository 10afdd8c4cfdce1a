-- How many attempts that ended since an instant have which verdict.
-- inputs:  cluster  text
--          since    timestamptz
-- output:  domain text, cause text, n_attempts bigint
select domain, cause, count(*) as n_attempts
from ops.attempt_verdicts
where cluster = :cluster and end_at >= :since and cause is not null
group by domain, cause
order by domain, cause
