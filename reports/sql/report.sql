-- Everything stored about one job, as one JSON document: one round trip, and the same answer
-- whether it is read here or sent over the service's socket.
-- inputs:  cluster  text   the cluster preferred when several have such a job
--          job_id   bigint the raw job id, or null; array_id + task, het_id + component likewise
--          listed_xids, listed_sxids  text[]  the codes that the vendor's tables list; of no severity, the others are listed all the same
--          until    timestamptz  the last job submitted no later than this; null: at any time
-- output:  document jsonb  attempts, verdicts, evidence, others, left_out (submit_at, n: how many others of that attempt are not listed; of each node
--                          at most 10,000 of a severity are counted), tested, unwatched (submit_at, node), pace, own_errors, moved, gangs, drains, returned (node, submit_at, at, by_hand: of the node that an attempt's verdict names, when after its end a repair of ours first ended with every test passed, or a person noted it as repaired; not from before a later repair began for that part), account,
--                          has_steps (whether the probe saw a step or a checkpoint of the run's first 100 jobs), other_submits (when other jobs of the same id were submitted), other_clusters (that have a job of this id, too), heartbeats, read_at, listening_since, exported_until (the last instant that imported accounting shows, or null),
--                          logs (node, at, restart_count, and of each output file stream, path, tail or why),
--                          run_jobs, siblings, n_siblings, never_started (of its array: job, state, cancelled_by); null when no attempt is known.
--                          Times ISO 8601 in UTC, durations in seconds.
with named as (
    select cluster, job_id, max(submit_at) as submit_at
    from probing.job_attempt
    where submit_at <= coalesce(%(until)s::timestamptz, 'infinity') and (job_id = %(job_id)s::bigint
       or (array_job_id = %(array_id)s::bigint
           and array_task_id = coalesce(%(task)s::bigint, array_task_id))
       or (het_job_id = %(het_id)s::bigint and het_offset = %(component)s::bigint))
    group by cluster, job_id
), picked as (
    -- a bare number means the job that has it, and only then some task of that array
    select cluster, job_id, submit_at from named
    order by cluster = %(cluster)s desc, job_id = %(job_id)s::bigint desc nulls last, submit_at desc
    limit 1
), of_id as materialized (
    -- Slurm uses an id again; all starts of one job have one owner and one name.
    select a.*, a."user" = l."user" and (a.name = l.name or '' in (a.name, l.name)) as is_picked
    from probing.job_attempt a
    join picked p using (cluster, job_id)
    join probing.job_attempt l on (l.cluster, l.job_id, l.submit_at) = (p.cluster, p.job_id, p.submit_at)
    order by a.submit_at desc limit 1000
), attempts as materialized (
    select * from of_id where is_picked
), lifetime as (
    -- what is stored under the id and not under one start: only what came while the id was this job's
    select min(a.submit_at) as since,
           coalesce((select min(o.submit_at) from of_id o where not o.is_picked and o.submit_at > max(a.submit_at)), 'infinity') as until
    from attempts a
), run as (
    select distinct cluster, "user", run_key from attempts
), verdicts as materialized (
    select v.* from probing.verdict v join attempts a on v.cluster = a.cluster and v.job_id = a.job_id and v.submit_at = a.submit_at where v.superseded_at is null
), wanted as (
    select distinct unnest(evidence) as event_id from verdicts
), evidence as (
    select e.* from wanted
    join probing.event_key k using (event_id)
    join probing.health_event e on e.event_id = k.event_id and e.at = k.at and e.cluster = (select cluster from picked)
), spans as (
    select cluster, unnest(nodes) as node, submit_at, start_at, coalesce(end_at, 'infinity') as end_at
    from (select * from attempts where start_at is not null order by submit_at desc limit 50) recent
), met as materialized (
    select s.submit_at, e.*,
           row_number() over (partition by s.submit_at, s.node order by e.severity = 'high' desc, e.severity = 'info', e.at desc, e.event_id) as place
    from spans s cross join (values ('high'), ('low'), ('info')) as k(severity)
    cross join lateral (
        select h.event_id, h.at, h.severity from probing.health_event h
        where h.cluster = s.cluster and h.node = s.node and h.at >= s.start_at and h.at <= s.end_at
          and h.severity = k.severity
          and (k.severity <> 'info' or (h.kind in ('xid', 'sxid', 'pcie_aer') and not coalesce(h.detail ?| array['grade', 'part'], false)
               and case h.kind when 'xid' then h.code <> all (%(listed_xids)s::text[])
                               when 'sxid' then h.code <> all (%(listed_sxids)s::text[]) else h.code = 'unknown' end))
          -- Of a node that several jobs share, what concerns another's processes is not told.
          and (h.job_id is null or h.job_id in (select job_id from picked))
          and (h.job_id is not null or h.kind not in ('oom', 'hung_task', 'segfault')
               or not exists (select from probing.job_attempt n
                              where n.cluster = s.cluster and n.nodes @> array[h.node] and n.job_id not in (select job_id from picked)
                                and n.start_at <= h.at and coalesce(n.end_at, 'infinity') >= h.at - interval '5 minutes'))
        order by h.at desc limit 10000
    ) e
), listed as materialized (
    -- The severe ones first, what no table lists last, and of each severity the last: a noisy part fills no list before the fault comes, and no node another's.
    select * from met where place <= 50 order by severity = 'high' desc, severity = 'info', place, at desc, event_id limit 500
), others as (
    select distinct on (h.event_id) h.* from listed l join probing.health_event h on h.event_id = l.event_id and h.at = l.at and h.cluster = (select cluster from picked)
), tested as (
    -- after its end, until a day later: what tests of ours found on its nodes
    select distinct on (e.event_id) e.* from spans s
    cross join lateral (
        select h.* from probing.health_event h
        where h.cluster = s.cluster and h.node = s.node and s.end_at < 'infinity' and h.at > s.end_at and h.at <= s.end_at + interval '1 day'
          and h.source = 'diagnostic' and h.severity in ('low', 'high')
        order by h.at limit 20
    ) e
), unwatched as (
    -- no agent was there, and no kernel log is at hand that reaches to within a day of it
    select s.submit_at, s.node from spans s
    left join probing.agent_heartbeat b on b.node = s.node and b.cluster = s.cluster
    where s.end_at < 'infinity'
      and not case when b.node is not null then least(b.at, b.received_at) >= s.start_at and not b.unwatched @> tstzrange(s.start_at, s.end_at, '[]')
                   else exists (select from probing.health_event h
                                where h.cluster = s.cluster and h.node = s.node and h.source in ('import', 'kernel') and h.at <= s.end_at
                                  and coalesce(h.last_at, h.at) >= s.start_at - interval '1 day') end
), pace as (
    select e.* from probing.health_event e
    where e.cluster = (select cluster from picked) and e.job_id in (select job_id from picked) and e.source = 'probe'
      and e.kind in ('rank_slow', 'gang_drift') and e.at >= (select since from lifetime) and e.at < (select until from lifetime)
    order by e.at limit 100
), own_errors as (
    -- what the output of a start that completed names as an error that ended something
    select e.* from probing.health_event e
    where e.cluster = (select cluster from picked) and e.job_id in (select job_id from attempts where state = 'COMPLETED') and e.source = 'joblog'
      and e.detail -> 'first_cause' = 'true' and e.at >= (select since from lifetime) and e.at < (select until from lifetime)
    order by e.at, e.event_id limit 20
), moved as (
    -- a line of each host on which Slurm ran a start in /tmp
    select distinct on (e.job_id, e.at, coalesce(e.detail ->> 'host', e.node)) e.* from probing.health_event e
    where e.cluster = (select cluster from picked) and e.job_id in (select job_id from attempts) and e.source = 'joblog'
      and e.kind = 'directory_replaced' and e.at >= (select since from lifetime) and e.at < (select until from lifetime)
    order by e.job_id, e.at, coalesce(e.detail ->> 'host', e.node), e.event_id limit 100
), gangs as (
    select g.* from probing.gang_verdict g join picked p on g.cluster = p.cluster and g.job_id = p.job_id
    where (g.kind <> 'unknown' or g.ended_at is null)
      and not exists (select from of_id o where not o.is_picked and o.submit_at = g.submit_at)
    order by g.made_at desc limit 100
), drains as (
    select d.* from probing.drain d
    where d.cluster = (select cluster from picked) and d.job_id in (select job_id from picked) and d.at >= (select since from lifetime) and d.at < (select until from lifetime)
    union
    select d.* from spans s
    join probing.drain d on d.cluster = s.cluster and d.node = s.node
     and d.at >= s.start_at and d.at <= s.end_at + interval '10 minutes'
    where d.job_id is null
), family as (
    select distinct on (a.cluster, a.job_id)
        a.job_id, a.array_job_id, a.array_task_id, a.het_job_id, a.het_offset, a.state, a.submit_at, a.cluster, a.nodes,
        count(*) over (partition by a.cluster, a.job_id) as n_attempts
    -- Two questions, and arrays: as one with OR, or as a join, it reads every attempt there is.
    from (
        select job_id, array_job_id, array_task_id, het_job_id, het_offset, state, submit_at, cluster, nodes from probing.job_attempt
        where cluster = (select cluster from picked) and array_job_id = any (array(select array_job_id from attempts)) and %(task)s::bigint is null
          and "user" = any (array(select "user" from attempts))
        union
        select job_id, array_job_id, array_task_id, het_job_id, het_offset, state, submit_at, cluster, nodes from probing.job_attempt
        where cluster = (select cluster from picked) and het_job_id = any (array(select het_job_id from attempts)) and "user" = any (array(select "user" from attempts))
    ) a
    order by a.cluster, a.job_id, a.submit_at desc
), exits as materialized (
    -- the nodes whose tasks ended with an error code, by srun's lines in the output of a heterogeneous job
    select distinct e.detail ->> 'host' as node from probing.health_event e
    where e.cluster = (select cluster from picked) and e.job_id in (select job_id from family where het_offset is not null) and e.source = 'joblog'
      and e.kind = 'task_exit' and e.at >= (select since from lifetime) and e.at < (select until from lifetime)
), siblings as (
    select f.job_id, f.array_job_id, f.array_task_id, f.het_job_id, f.het_offset, f.state, f.n_attempts, v.cause, v.component, v.summary,
           f.het_offset is not null and f.nodes && array(select node from exits) as task_failed
    from family f
    left join probing.verdict v
      on v.cluster = f.cluster and v.job_id = f.job_id and v.submit_at = f.submit_at and v.superseded_at is null
    order by f.state = 'COMPLETED', f.state = 'RUNNING', f.array_task_id, f.het_offset
    limit 1000
)
select case when exists (select 1 from attempts) then jsonb_build_object(
    'attempts', (select jsonb_agg(to_jsonb(a) order by a.submit_at) from attempts a),
    'other_submits', (select jsonb_agg(submit_at order by submit_at) from of_id where not is_picked),
    'other_clusters', (select jsonb_agg(distinct cluster) from named where cluster not in (select cluster from picked)),
    'verdicts', (select jsonb_agg(to_jsonb(v)) from verdicts v),
    'evidence', (select jsonb_agg(to_jsonb(e) order by e.at) from evidence e),
    'others', (select jsonb_agg(to_jsonb(o) order by o.at, o.event_id) from others o),
    'left_out', (select jsonb_agg(jsonb_build_object('submit_at', m.submit_at, 'n', m.n))
                 from (select submit_at, count(*) - (select count(*) from listed l where l.submit_at = met.submit_at) as n from met group by submit_at) m
                 where m.n > 0),
    'tested', (select jsonb_agg(to_jsonb(t) order by t.at) from (select * from tested order by at limit 100) t),
    'unwatched', (select jsonb_agg(to_jsonb(u)) from (select * from unwatched order by submit_at, node limit 5000) u),
    'pace', (select jsonb_agg(to_jsonb(p) order by p.at) from pace p),
    'own_errors', (select jsonb_agg(to_jsonb(e) order by e.at, e.event_id) from own_errors e),
    'moved', (select jsonb_agg(to_jsonb(m) order by m.at, m.event_id) from moved m),
    'gangs', (select jsonb_agg(to_jsonb(g) order by g.made_at) from gangs g),
    'drains', (select jsonb_agg(to_jsonb(d) order by d.at) from drains d),
    'account', (select to_jsonb(r) from probing.run_account r join run u on r.cluster = u.cluster and r."user" = u."user" and r.run_key = u.run_key limit 1),
    'returned', (select jsonb_agg(jsonb_build_object('node', v.node, 'submit_at', v.submit_at, 'at', b.at, 'by_hand', b.by_hand) order by v.submit_at)
                 from verdicts v
                 join attempts a on a.submit_at = v.submit_at
                 cross join lateral probing.back_from_repair(v.cluster, v.node, v.device, a.end_at) b),
    -- when it was heard, by the server's clock: the node's own may be off
    'heartbeats', (select jsonb_agg(to_jsonb(h) - 'ranks' || jsonb_build_object('at', h.received_at)) from probing.agent_heartbeat h
                   where h.cluster = (select cluster from picked) and h.node in (select node from spans where end_at = 'infinity')),
    'exported_until', probing.exported_until(),
    'read_at', clock_timestamp(),
    'listening_since', (select min(probing.listening() ->> cluster) from picked),
    'has_steps', exists (select from probing.health_event e
                   where e.job_id = any (array(select distinct a.job_id from probing.job_attempt a join run using (cluster, "user", run_key) order by 1 limit 100))
                     and e.cluster in (select cluster from picked) and e.source = 'probe' and e.kind in ('first_step', 'last_progress', 'checkpoint')
                     and e.at >= (select min(a.start_at) from probing.job_attempt a join run using (cluster, "user", run_key))),
    'run_jobs', (select jsonb_agg(job_id order by job_id) from (
                   select distinct a.job_id from probing.job_attempt a join run u on a.cluster = u.cluster and a."user" = u."user" and a.run_key = u.run_key
                   order by a.job_id limit 100) j),
    'logs', (select jsonb_agg(jsonb_build_object('node', l.node, 'at', l.at, 'restart_count', l.restart_count, 'logs', l.detail -> 'logs') order by l.at, l.node)
             from (select a.* from probing.job_allocation a join picked p on a.cluster = p.cluster and a.job_id = p.job_id
                   where jsonb_typeof(a.detail -> 'logs') = 'array'
                     and a.at >= (select since from lifetime) - interval '1 minute'
                     -- Within a minute before the next job of the id, a Prolog may be of either.
                     and (a.at < (select until from lifetime) - interval '1 minute'
                          or exists (select from attempts t where t.end_at is not null and probing.is_prolog_of(a.at, t.start_at, t.end_at)))
                   order by a.at desc limit 200) l),
    'siblings', (select jsonb_agg(to_jsonb(s)) from siblings s),
    'never_started', (select jsonb_agg(jsonb_build_object('job', n.job, 'state', n.state, 'cancelled_by', n.by) order by n.job) from (
                   select distinct on (e.detail ->> 'job') e.detail ->> 'job' as job, e.detail ->> 'state' as state, e.detail ->> 'cancelled_by' as by
                   from probing.health_event e
                   where e.cluster = (select cluster from picked) and e.job_id in (select array_job_id from attempts) and %(task)s::bigint is null
                     and e.kind = 'never_started' and e.node = '' -- a node's agent can write no event of no node
                     and coalesce(e.detail ->> 'user', '') in (select "user" from attempts union select '')
                   order by e.detail ->> 'job', e.at desc limit 100) n),
    'n_siblings', (select count(*) from family)
) end as document
