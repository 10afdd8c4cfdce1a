-- Runs whose account is missing or older than their attempts.
-- inputs:  since           timestamptz  only runs with an attempt that ended since, runs or waits
--          refresh_before  timestamptz  the account of a run that goes on is renewed when made before this
--          most            int          runs at most
--          told_after      timestamptz  runs that ended since may still be told of by their nodes' last words
-- output:  cluster text, "user" text, run_key text
with recent as (
    select cluster, "user", run_key, max(end_at) as ended_at, bool_or(end_at is null) as goes_on
    from probing.job_attempt
    where (end_at >= :since or end_at is null) and run_key <> ''
    group by cluster, "user", run_key
    having bool_or(start_at is not null)
)
select r.cluster, r."user", r.run_key
from recent r
-- One by one: there is at most one, and a join would read every account ever made to find a week's.
left join lateral (
    select x.run_key, x.end_at, x.made_at
    from probing.run_account x
    where x.run_key = r.run_key and x."user" = r."user" and x.cluster = r.cluster
    limit 1
) a on true
where a.run_key is null
   or r.ended_at > a.end_at
   or (r.goes_on and a.made_at < :refresh_before)
   -- Made after the end, but before accounting told of it: it counts time in which nothing ran.
   or (not r.goes_on and a.end_at <> r.ended_at)
   or (r.ended_at >= :told_after and exists (
        select from probing.job_attempt j
        join probing.health_event e on e.job_id = j.job_id and e.source = 'probe' and e.kind in ('first_step', 'last_progress', 'checkpoint')
        join probing.event_key k on k.event_id = e.event_id and k.received_at > a.made_at
        where j.run_key = r.run_key and j.cluster = r.cluster and j."user" = r."user" and e.at between j.start_at and j.end_at
   ))
order by r.ended_at nulls last
limit :most
