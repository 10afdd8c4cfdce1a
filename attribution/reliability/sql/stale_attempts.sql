-- The attempts of every run whose account is missing or older than they are, run by run in the order of the runs' ends.
-- inputs:  $1 since           timestamptz  only runs with an attempt that ended since, runs or waits
--          $2 refresh_before  timestamptz  the account of a run that goes on is renewed when made before this
--          $3 refreshed_after timestamptz  late reports of nodes may still concern runs that ended since
-- output:  run_no bigint (1, 2 … per run), cluster text, "user" text, run_key text, job_id bigint, submit_at timestamptz, attempt bigint,
--          eligible_at timestamptz, start_at timestamptz, end_at timestamptz (or when an attempt without one must have ended), suspended_s double precision, state text, n_nodes int,
--          n_gpus bigint
with recent as (
    select cluster, "user", run_key, max(over_at) as ended_at, bool_or(over_at is null) as goes_on, bool_or(end_at is not null) as has_end
    from (select *, case when o.at is not null then greatest(o.at, a.start_at, a.submit_at) end as over_at  -- as the account has it
          from probing.job_attempt a, lateral (select coalesce(a.end_at, probing.ran_until(a)) as at) as o) as a
    where (end_at >= $1 or end_at is null) and run_key <> ''
    group by cluster, "user", run_key
    having bool_or(start_at is not null)
), hung as materialized (
    -- Verdicts that date the hang of an attempt, or did so: an account made before lacks that. There are few.
    select j.cluster, j."user", j.run_key, max(greatest(v.made_at, v.superseded_at)) as judged_at
    from probing.verdict v
    join probing.job_attempt j on j.job_id = v.job_id and j.submit_at = v.submit_at and j.cluster = v.cluster
    where v.stalled_at is not null and j.end_at >= $1
    group by j.cluster, j."user", j.run_key
), stale as (
    select row_number() over (order by r.ended_at nulls last, r.cluster, r."user", r.run_key) as run_no, r.cluster, r."user", r.run_key
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
       or (r.goes_on and a.made_at < $2)
       or exists (select from hung h where h.run_key = r.run_key and h."user" = r."user" and h.cluster = r.cluster and h.judged_at > a.made_at)
       -- Made after the end, but before accounting recorded it: it counts time in which nothing ran.
       or (not r.goes_on and a.end_at <> r.ended_at)
       -- The same of a run that goes on, by when that end was judged: what was lost with it is in no account made before.
       or (r.goes_on and r.has_end and exists (
            select from probing.job_attempt j
            join probing.verdict v on v.job_id = j.job_id and v.submit_at = j.submit_at and v.cluster = j.cluster and v.superseded_at is null
            where j.run_key = r.run_key and j.cluster = r.cluster and j."user" = r."user" and j.end_at >= $1 and v.made_at > a.made_at
       ))
       or (r.ended_at >= $3 and exists (
            select from probing.job_attempt j
            join probing.health_event e on e.cluster = j.cluster and e.job_id = j.job_id and e.source = 'probe' and e.kind in ('first_step', 'last_progress', 'checkpoint')
            join probing.event_key k on k.event_id = e.event_id and k.received_at > a.made_at
            where j.run_key = r.run_key and j.cluster = r.cluster and j."user" = r."user" and e.at between j.start_at and j.end_at
       ))
)
select s.run_no, s.cluster, s."user", s.run_key, j.job_id, j.submit_at, j.attempt, j.eligible_at, j.start_at, j.end_at, j.suspended_s,
    j.state, j.n_nodes, j.n_gpus
from stale s
-- By the index for the same reason; all attempts of the run, not only those since.
cross join lateral (
    select x.job_id, x.submit_at, x.attempt, x.eligible_at, x.start_at, coalesce(x.end_at, probing.ran_until(x)) as end_at, x.suspended_s, x.state,
        cardinality(x.nodes) as n_nodes, x.n_gpus
    from probing.job_attempt x
    where x.run_key = s.run_key and x."user" = s."user" and x.cluster = s.cluster
    offset 0
) j
order by s.run_no, j.submit_at, j.job_id
