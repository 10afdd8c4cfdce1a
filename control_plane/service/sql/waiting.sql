-- What waits, who is silent and what was refused, for the metrics: one row.
-- inputs:  cluster  text
-- output:  unjudged bigint, oldest_unjudged_s double precision (0 where none), arrivals bigint, requests bigint,
--          drains bigint, refused_24h bigint (rows), ending bigint (agents whose certificate ends soon),
--          heard bigint, silent bigint (agents)
select
    u.n as unjudged,
    coalesce(extract(epoch from now() - u.oldest), 0)::double precision as oldest_unjudged_s,
    (select count(*) from probing.arrival w) as arrivals,
    -- by what an index is for: the state is a word made of these
    (
        select count(*) from ops.requests where cluster = :cluster and acknowledged_at is null and expires_at > now()
    ) as requests,
    (select count(*) from ops.drains where cluster = :cluster and open) as drains,
    (select least(coalesce(sum(n_rows), 0), 9e18) from ops.rejections
     where last_at >= now() - interval '24 hours' and day >= now() - interval '48 hours')::bigint as refused_24h,
    -- from the key's index, which holds the name: 0.1 s of 8,000 nodes with sixty checks each
    (
        select count(*)
        from probing.agent_heartbeat as h
        join probing.check_now as c on c.cluster = h.cluster and c.node = h.node and c.name = 'agent_certificate'
        where h.cluster = :cluster and c.outcome = 'warn'
    ) as ending,
    a.heard,
    a.silent
from (
    select count(*) as n, min(end_at) as oldest
    from probing.job_attempt
    where cluster = :cluster and judged_at is null and end_at is not null and state <> 'COMPLETED'
) as u
cross join (
    select count(*) filter (where not silent) as heard, count(*) filter (where silent) as silent
    from ops.agent_health
    where cluster = :cluster
) as a
