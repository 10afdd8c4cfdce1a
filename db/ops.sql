-- Schema ops: what operators and dashboards query; stable, documented in docs/sql.md with a query each.
-- Inputs   the tables of schema probing, with the reader's own rights (security_invoker).
-- Columns are only ever added, at the end: dashboards depend on them. Times UTC, durations seconds (_s).
CREATE SCHEMA IF NOT EXISTS ops;
COMMENT ON SCHEMA ops IS 'Stable views for operators and dashboards; see docs/sql.md.';

-- Since when each cluster's agents can be heard without a gap, by the server's clock: no agent is silent for what nobody could hear.
-- Output   {cluster: instant}, of clusters whose service has found a gap (task `silence`, store.listen_anew); readers see nothing else of `state`.
CREATE OR REPLACE FUNCTION probing.listening() RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $listening$
    SELECT coalesce(jsonb_object_agg(substr(s.key, 11), s.value), '{}') FROM probing.state s WHERE starts_with(s.key, 'listening ')
$listening$;
COMMENT ON FUNCTION probing.listening() IS 'Since when the agents of each cluster can be heard without a gap; empty where there was none.';

-- The last instant that imported accounting shows: of what it shows running nothing later is known.
-- Output   null where a service reads accounting (task `accounting`), or none was imported; readers see nothing else of `state`.
CREATE OR REPLACE FUNCTION probing.exported_until() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $exported$
    SELECT (s.value #>> '{}')::timestamptz FROM probing.state s
    WHERE s.key = 'accounting.exported' AND NOT EXISTS (SELECT FROM probing.state p WHERE starts_with(p.key, 'accounting.until'))
$exported$;
COMMENT ON FUNCTION probing.exported_until() IS 'The last instant that imported accounting shows; null where a service reads accounting.';

-- Slurm's OverTimeLimit of each cluster, as its service read it last.
-- Output   {cluster: seconds}, -1 = unlimited; readers see nothing else of `state`.
CREATE OR REPLACE FUNCTION probing.over_time_limit() RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $over$
    SELECT coalesce(jsonb_object_agg(substr(s.key, 23), s.value), '{}') FROM probing.state s WHERE starts_with(s.key, 'slurm.over_time_limit ')
$over$;
COMMENT ON FUNCTION probing.over_time_limit() IS 'OverTimeLimit of each cluster, seconds; -1 = unlimited.';

-- Until when an attempt beyond its limit can have run; asked through probing.ran_until alone.
-- Output   its limit and Slurm's OverTimeLimit after its start, without the time it was suspended, or later, when an agent of its nodes last
--          named it; null for one that has ended, has no limit, is suspended or within its limit, or was named within 10 minutes.
CREATE OR REPLACE FUNCTION probing.beyond_limit(p probing.job_attempt) RETURNS timestamptz
LANGUAGE sql STABLE
AS $ran$
    SELECT CASE WHEN f.named_at > now() - interval '10 minutes' THEN NULL ELSE greatest(f.limit_at, f.named_at) END
    FROM (SELECT l.limit_at,
                 (SELECT max(h.received_at) FROM probing.agent_heartbeat h
                  WHERE h.cluster = p.cluster AND h.node = ANY (p.nodes) AND p.job_id = ANY (h.jobs)) AS named_at
          FROM (SELECT p.start_at + make_interval(secs => p.time_limit_s + coalesce(p.suspended_s, 0) + o.over_s) AS limit_at
                FROM (SELECT coalesce(((SELECT probing.over_time_limit()) ->> p.cluster)::double precision, 0) AS over_s) AS o
                WHERE o.over_s >= 0 AND p.end_at IS NULL AND p.state <> 'SUSPENDED') AS l
          WHERE l.limit_at < now()) AS f
$ran$;
COMMENT ON FUNCTION probing.beyond_limit(probing.job_attempt) IS 'Part of probing.ran_until.';

-- When an attempt that accounting shows running must have ended: slurmdbd never heard its end (sacctmgr show runawayjobs).
-- One expression, which the planner puts in the place of the call: the thousands that are within their limit cost no call.
CREATE OR REPLACE FUNCTION probing.ran_until(p probing.job_attempt) RETURNS timestamptz
LANGUAGE sql STABLE
AS $ran$
    SELECT CASE WHEN p.end_at IS NULL AND p.start_at + make_interval(secs => p.time_limit_s) < now() THEN probing.beyond_limit(p) END
$ran$;
COMMENT ON FUNCTION probing.ran_until(probing.job_attempt) IS 'When an attempt that accounting shows running must have ended; null where it may run.';

CREATE OR REPLACE VIEW ops.agent_health WITH (security_invoker = true) AS
SELECT
    h.cluster, h.node,
    s.silent_s > 2 * least(h.beat_s, 86400) AS silent,
    a.age_s, h.beat_s, h.received_at, h.at, h.version, h.started_at, h.boot_id,
    h.spool_depth, h.spool_bytes, h.lag_s, h.dropped_total, h.coalesced_total, h.rejected_total,
    h.hung_children, h.rss_bytes, h.cpu_s, h.sources,
    (SELECT count(*) FROM jsonb_object_keys(CASE WHEN jsonb_typeof(h.faults) = 'object' THEN h.faults ELSE '{}' END)) AS n_faults,
    cardinality(h.jobs) AS n_jobs, s.silent_s
FROM probing.agent_heartbeat h
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM now() - h.received_at)::double precision AS age_s,
           extract(epoch FROM now() - ((SELECT probing.listening()) ->> h.cluster)::timestamptz)::double precision AS listened_s
) AS a
CROSS JOIN LATERAL (SELECT least(a.age_s, CASE WHEN a.listened_s < 0 THEN 0 ELSE a.listened_s END) AS silent_s) AS s;
COMMENT ON VIEW ops.agent_health IS 'The agent of every node: is it heard, what waits in its spool, what it lost. Silent = two missed beats.';
COMMENT ON COLUMN ops.agent_health.silent IS 'true when nothing was heard for two beats in which it could have been';
COMMENT ON COLUMN ops.agent_health.silent_s IS 'seconds in which it could have been heard and was not: age_s, or less after the database was away';
COMMENT ON COLUMN ops.agent_health.age_s IS 'seconds since the database last heard from it, by the server''s clock';
COMMENT ON COLUMN ops.agent_health.n_faults IS 'faults it confirms right now';
COMMENT ON COLUMN ops.agent_health.n_jobs IS 'jobs on the node right now';

CREATE OR REPLACE VIEW ops.check_now WITH (security_invoker = true) AS
SELECT
    c.cluster, c.node, c.name, c.outcome, c.severity, c.message, c.device, c.measured, c.threshold, c.unit,
    c.duration_s, c.timed_out, c.version, c.at,
    extract(epoch FROM now() - c.at)::double precision AS age_s,
    c.detail
FROM probing.check_now c;
COMMENT ON VIEW ops.check_now IS 'The latest result of every health check on every node.';
COMMENT ON COLUMN ops.check_now.age_s IS 'seconds since the check last reported';

CREATE OR REPLACE VIEW ops.drains WITH (security_invoker = true) AS
SELECT
    d.drain_id, d.cluster, d.node, d.at, d.action,
    CASE WHEN b.under_way THEN 'under way' ELSE d.state END AS state,
    d.reason, d.owner,
    CASE WHEN b.under_way THEN regexp_replace(d.why_state, '^[^:]*:? ?', '') ELSE d.why_state END AS why_state,
    d.severity, d.job_id,
    d.action = 'drain' AND d.state = 'done' AND d.ended_at IS NULL AS open,
    d.ended_at,
    CASE
        WHEN d.ended_at IS NOT NULL OR (d.state = 'done' AND d.action IN ('drain', 'exclude'))
        THEN extract(epoch FROM coalesce(d.ended_at, now()) - d.at)::double precision
    END AS duration_s,
    d.event_ids
FROM probing.drain d
CROSS JOIN LATERAL (
    -- It is recorded as failed until its outcome is known.
    SELECT d.state = 'failed' AND starts_with(d.why_state, 'begun; its outcome was not recorded') AND d.at > now() - interval '300 seconds' AS under_way
) AS b;
COMMENT ON VIEW ops.drains IS 'Every decision about a node: drains, requeues, resumes, refusals, done or denied, and why.';
COMMENT ON COLUMN ops.drains.state IS 'done, simulated, denied, failed, skipped, resumed, or under way: begun less than five minutes ago, its outcome not known yet';
COMMENT ON COLUMN ops.drains.open IS 'true while a node drain of ours stands';
COMMENT ON COLUMN ops.drains.duration_s IS 'seconds from the decision to its end, or to now while it stands; null for what does not last, such as a requeue, or was not done';

CREATE OR REPLACE VIEW ops.lemons WITH (security_invoker = true) AS
SELECT
    s.cluster, s.node, s.day, s.score, s.verdict, s.reasons, s.excl_jobid_count, s.xid_cnt, s.tickets, s.out_count,
    s.multi_node_node_fails, s.single_node_node_fails, s.single_node_node_failure_rate, s.signals, s.made_at
FROM probing.lemon_score s
WHERE s.day = (SELECT max(l.day) FROM probing.lemon_score l WHERE l.cluster = s.cluster)
  AND s.verdict IN ('lemon', 'suspect');
COMMENT ON VIEW ops.lemons IS 'The nodes named lemon or suspect on the latest scored day, with the signals.';

-- How its owner and squeue name an attempt's job: 4242, 4242_7 (array task), 4242+1 (het component); JobAttempt.ref is its twin.
CREATE OR REPLACE FUNCTION probing.job_ref(p probing.job_attempt) RETURNS text
LANGUAGE sql IMMUTABLE
AS $ref$
    SELECT coalesce(p.array_job_id || '_' || p.array_task_id, p.het_job_id || '+' || p.het_offset, p.job_id::text)
$ref$;
COMMENT ON FUNCTION probing.job_ref(probing.job_attempt) IS 'The job as its owner names it: 4242, 4242_7 (array task), 4242+1 (het component).';

-- When a node first came back well after `after`: a repair of ours ended with every test passed, or a person noted it as repaired.
-- Not from before a later repair began, unless all of that one's events were of other parts than `of_device`: those leave done what was done.
-- Output   no row where it has not come back; by_hand: whether a person said so.
CREATE OR REPLACE FUNCTION probing.back_from_repair(of_cluster text, of_node text, of_device text, after timestamptz)
RETURNS TABLE (at timestamptz, by_hand boolean)
LANGUAGE sql STABLE
AS $back$
    SELECT b.at, b.by_hand
    FROM (SELECT i.closed_at AS at, false AS by_hand FROM probing.repair_incident i
          WHERE i.cluster = of_cluster AND i.node = of_node AND i.state = 'returned'
          UNION ALL
          SELECT n.at, true FROM probing.operator_note n
          WHERE n.cluster = of_cluster AND n.subject = 'node:' || of_node AND n.action = 'repaired') AS b
    WHERE b.at > after AND b.at >= coalesce((
        SELECT max(CASE WHEN i.state = 'returned' THEN i.closed_at ELSE i.opened_at END) FROM probing.repair_incident i
        WHERE i.cluster = of_cluster AND i.node = of_node AND coalesce(i.closed_at, 'infinity') > after
          AND NOT EXISTS (SELECT 1 FROM probing.drain d CROSS JOIN unnest(d.event_ids) AS u (event_id) JOIN probing.event_key k USING (event_id)
                          JOIN probing.health_event e ON e.event_id = k.event_id AND e.at = k.at
                          WHERE d.drain_id = i.drain_id HAVING bool_and(e.device IS DISTINCT FROM of_device))
    ), '-infinity')
    ORDER BY b.at
    LIMIT 1
$back$;
COMMENT ON FUNCTION probing.back_from_repair(text, text, text, timestamptz) IS 'When a node first came back well after an instant, and whether a person said so.';

CREATE OR REPLACE VIEW ops.attempt_verdicts WITH (security_invoker = true) AS
SELECT
    a.cluster, a.job_id, a.submit_at, a.attempt, a.run_key, a."user" AS user_name, a.account, a.partition, a.qos,
    a.name, a.state, a.exit_code, a.exit_signal, a.eligible_at, a.start_at, a.end_at,
    extract(epoch FROM a.end_at - a.start_at)::double precision AS elapsed_s,
    a.nodes, cardinality(a.nodes) AS n_nodes, a.n_gpus,
    v.cause, v.domain, v.component, v.node, v.device, v.confidence, v.summary, v.next_step, v.ruled_out, v.evidence,
    v.incident_id, v.onset_at, v.author, v.rules_version, v.made_at, v.place, probing.job_ref(a) AS ref, v.log_read
FROM probing.job_attempt a
LEFT JOIN probing.verdict v
  ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL;
COMMENT ON VIEW ops.attempt_verdicts IS 'Every attempt of every job with its current verdict; the verdict''s columns are null where there is none.';
COMMENT ON COLUMN ops.attempt_verdicts.user_name IS 'user name';
COMMENT ON COLUMN ops.attempt_verdicts.elapsed_s IS 'seconds from start to end; null while running';
COMMENT ON COLUMN ops.attempt_verdicts.n_nodes IS 'nodes allocated';
COMMENT ON COLUMN ops.attempt_verdicts.ref IS 'the job as its owner names it: 4242, 4242_7 (array task), 4242+1 (het component)';

CREATE OR REPLACE VIEW ops.failures_24h WITH (security_invoker = true) AS
SELECT
    f.cluster, f.job_id, f.attempt, f.user_name, f.account, f.partition, f.name, f.state, f.start_at, f.end_at,
    f.elapsed_s, f.n_nodes, f.n_gpus, f.n_gpus * f.elapsed_s / 3600 AS gpu_hours,
    f.cause, f.domain, f.component, f.node, f.device, f.confidence, f.summary, f.next_step, f.incident_id, f.nodes,
    f.ref, f.log_read
FROM ops.attempt_verdicts f
WHERE f.end_at >= now() - interval '24 hours'
  AND f.state NOT IN ('COMPLETED', 'CANCELLED')
  AND f.start_at IS NOT NULL;
COMMENT ON VIEW ops.failures_24h IS 'Attempts that ended in the last 24 hours other than completed or cancelled, with why.';
COMMENT ON COLUMN ops.failures_24h.gpu_hours IS 'GPUs times elapsed time of the attempt, hours';

CREATE OR REPLACE VIEW ops.causes_daily WITH (security_invoker = true) AS
-- Day by day, so that a span of days is asked of the index and not of the whole table; and verdict by verdict: the key is
-- unique, so LIMIT 1 changes no row, but keeps the planner from reading every verdict ever given once a day of the span.
SELECT c.cluster, days.day, c.domain, c.cause, c.n_attempts, c.n_jobs, c.gpu_hours
FROM generate_series(
    date_trunc('day', now(), 'UTC') - interval '24 hours' * 799, date_trunc('day', now(), 'UTC'), interval '24 hours'
) AS days(day)
CROSS JOIN LATERAL (
    SELECT
        a.cluster, v.domain, v.cause,
        count(*) AS n_attempts,
        count(DISTINCT a.job_id) AS n_jobs,
        sum(a.n_gpus * extract(epoch FROM a.end_at - a.start_at)::double precision) / 3600 AS gpu_hours
    FROM probing.job_attempt a
    CROSS JOIN LATERAL (
        SELECT f.domain, f.cause
        FROM probing.verdict f
        WHERE f.job_id = a.job_id AND f.submit_at = a.submit_at AND f.cluster = a.cluster AND f.superseded_at IS NULL
        LIMIT 1
    ) AS v
    WHERE a.end_at >= days.day AND a.end_at < days.day + interval '24 hours'
    GROUP BY a.cluster, v.domain, v.cause
) AS c;
COMMENT ON VIEW ops.causes_daily IS 'Attempts and GPU hours by day and cause, of the last 800 days; ask for a span of days.';
COMMENT ON COLUMN ops.causes_daily.cluster IS 'Slurm cluster name';
COMMENT ON COLUMN ops.causes_daily.domain IS 'user_program, system_software, hardware or unknown';
COMMENT ON COLUMN ops.causes_daily.cause IS 'stable snake_case word listed in docs/causes.md';
COMMENT ON COLUMN ops.causes_daily.day IS 'the day the attempts ended (its midnight, UTC)';
COMMENT ON COLUMN ops.causes_daily.n_attempts IS 'attempts with that cause';
COMMENT ON COLUMN ops.causes_daily.n_jobs IS 'distinct jobs among them';
COMMENT ON COLUMN ops.causes_daily.gpu_hours IS 'GPUs times elapsed time of those attempts, hours';

CREATE OR REPLACE VIEW ops.high_events_24h WITH (security_invoker = true) AS
SELECT
    e.cluster, e.node, e.at, e.kind, e.code, e.device, e.pci_bus_id, e.gpu_uuid, e.job_id, e.count, e.last_at, e.source,
    e.message, e.event_id
FROM probing.health_event e
WHERE e.severity = 'high' AND e.at >= now() - interval '24 hours';
COMMENT ON VIEW ops.high_events_24h IS 'Events of high severity in the last 24 hours.';

CREATE OR REPLACE VIEW ops.runs WITH (security_invoker = true) AS
SELECT
    r.cluster, r.run_key, r."user" AS user_name, r.start_at, r.end_at, r.n_gpus, r.n_attempts, r.wall_s, r.queued_s,
    r.productive_s, r.lost_to_replay_s, r.restart_s, r.checkpoint_s, r.suspended_s, r.idle_s, r.measured,
    r.ettr_measured, r.ettr_expected,
    r.n_gpus * (r.lost_to_replay_s + r.restart_s) / 3600 AS lost_gpu_hours, r.made_at
FROM probing.run_account r;
COMMENT ON VIEW ops.runs IS 'Every run: where its wall time went and its ETTR.';
COMMENT ON COLUMN ops.runs.user_name IS 'its owner';
COMMENT ON COLUMN ops.runs.lost_gpu_hours IS 'GPU hours replayed and spent restarting';

CREATE OR REPLACE VIEW ops.incidents WITH (security_invoker = true) AS
-- By its first victim, so that a span of onsets is asked of an index, and the other victims are then looked up: grouping would
-- go through every verdict ever given.
SELECT v.cluster, v.incident_id, v.onset_at, i.cause, i.domain, i.n_attempts, i.n_jobs, i.nodes, i.summary, i.place
FROM probing.verdict v
CROSS JOIN LATERAL (
    SELECT
        min(w.cause) AS cause, min(w.domain) AS domain, count(*) AS n_attempts, count(DISTINCT w.job_id) AS n_jobs,
        array_remove(array_agg(DISTINCT w.node), NULL) AS nodes, min(w.summary) AS summary,
        max(w.place) AS place
    FROM probing.verdict w
    WHERE w.incident_id = v.incident_id AND w.cluster = v.cluster AND w.superseded_at IS NULL
    HAVING count(*) > 1 OR bool_or(w.incident_id <> ALL (w.evidence))
) AS i
WHERE v.incident_id IS NOT NULL AND v.superseded_at IS NULL
  AND v.verdict_id = (
      SELECT e.verdict_id FROM probing.verdict e
      WHERE e.incident_id = v.incident_id AND e.cluster = v.cluster AND e.superseded_at IS NULL
      ORDER BY e.onset_at, e.verdict_id LIMIT 1
  );
COMMENT ON VIEW ops.incidents IS 'One row per fault that ended several attempts or was seen on many nodes.';
COMMENT ON COLUMN ops.incidents.n_attempts IS 'attempts it ended';
COMMENT ON COLUMN ops.incidents.n_jobs IS 'distinct jobs among them';
COMMENT ON COLUMN ops.incidents.nodes IS 'nodes at fault';

CREATE OR REPLACE VIEW ops.places WITH (security_invoker = true) AS
SELECT p.cluster, p.kind, p.place, array_agg(p.node ORDER BY p.node) AS nodes, count(*) AS n_nodes, min(p.since_at) AS since_at
FROM probing.node_place p
WHERE p.until_at IS NULL
GROUP BY p.cluster, p.kind, p.place;
COMMENT ON VIEW ops.places IS 'What nodes share now: switches, racks, power feeds, file servers.';
COMMENT ON COLUMN ops.places.nodes IS 'the nodes there';
COMMENT ON COLUMN ops.places.n_nodes IS 'how many they are';
COMMENT ON COLUMN ops.places.since_at IS 'when the first of them was first known to be there';

CREATE OR REPLACE VIEW ops.requests WITH (security_invoker = true) AS
SELECT
    q.request_id, q.cluster, q.node, q.verb, q.job_id,
    CASE WHEN q.acknowledged_at IS NOT NULL THEN 'acknowledged' WHEN q.expires_at <= now() THEN 'expired'
         WHEN q.delivered_at IS NOT NULL THEN 'delivered' ELSE 'open' END AS state,
    q.made_at, q.delivered_at, q.acknowledged_at, q.expires_at, q.detail
FROM probing.node_request q;
COMMENT ON VIEW ops.requests IS 'What the control plane asked of nodes and what became of it.';
COMMENT ON COLUMN ops.requests.state IS 'open, delivered, acknowledged or expired';

CREATE OR REPLACE VIEW ops.rejections WITH (security_invoker = true) AS
SELECT r.day, r.role_name, r.node, r.reason, r.n_rows, r.last_at, r.sample FROM probing.rejection r;
COMMENT ON VIEW ops.rejections IS 'Rows that delivery refused, per sender, reason and day: bugs, or somebody forging.';

CREATE OR REPLACE VIEW ops.node_now WITH (security_invoker = true) AS
SELECT
    h.cluster, h.node,
    CASE WHEN h.silent THEN 'silent' WHEN h.n_faults > 0 THEN 'faulty' WHEN d.open OR o.node IS NOT NULL THEN 'drained'
         WHEN c.n_failing > 0 THEN 'failing checks' ELSE 'ok' END AS state,
    h.age_s, h.n_faults, f.faults, h.n_jobs, f.jobs, coalesce(c.n_failing, 0) AS n_failing, c.failing,
    d.open IS TRUE OR o.node IS NOT NULL AS drained, coalesce(d.reason, o.reason) AS drain_reason,
    coalesce(d.at, o.since_at) AS drained_at,
    l.score AS lemon_score, l.verdict AS lemon_verdict,
    CASE WHEN d.open AND d.owner = 'probing' THEN 'us'
         -- A person, with our command.
         WHEN d.open THEN 'another'
         -- How the reasons begin that slurmctld writes for what went wrong there: slurm_plugins/acts/node_events.py.
         WHEN o.reason ~ '^(Not responding|Node unexpectedly rebooted|reboot timed out|Prolog error|Prolog/Epilog failure|'
                          'Epilog error|Kill task failed|Duplicate jobid|batch job complete failure|ResumeTimeout reached|'
                          'NO NETWORK ADDRESS FOUND|Low |gres/|Could not unpack gres data|CoreSpec differ|'
                          'RestrictedCoresPerGPU|Reported active features)' THEN 'slurm'
         WHEN o.node IS NOT NULL THEN 'another' END AS drained_by
FROM ops.agent_health h
JOIN probing.agent_heartbeat f ON f.cluster = h.cluster AND f.node = h.node
LEFT JOIN LATERAL (
    SELECT count(*) AS n_failing, array_agg(k.name ORDER BY k.name) AS failing
    FROM probing.check_now k
    WHERE k.cluster = h.cluster AND k.node = h.node AND k.outcome IN ('fail', 'error')
) AS c ON true
LEFT JOIN LATERAL (
    SELECT true AS open, x.reason, x.at, x.owner FROM probing.drain x
    -- A permission to refuse jobs drains nothing.
    WHERE x.node = h.node AND x.cluster = h.cluster AND x.action = 'drain' AND x.state = 'done' AND x.ended_at IS NULL
    ORDER BY x.at DESC LIMIT 1
) AS d ON true
LEFT JOIN LATERAL (
    SELECT s.score, s.verdict FROM probing.lemon_score s
    WHERE s.cluster = h.cluster AND s.node = h.node ORDER BY s.day DESC LIMIT 1
) AS l ON true
-- What Slurm showed at the last look; what we did since is in our own row already.
LEFT JOIN probing.slurm_drain o ON o.cluster = h.cluster AND o.node = h.node;
COMMENT ON VIEW ops.node_now IS 'One row per node: heard or silent, its confirmed faults, failing checks, whether it is drained, its lemon score.';
COMMENT ON COLUMN ops.node_now.state IS 'silent, faulty, drained (or down in Slurm), failing checks or ok; the worst that holds';
COMMENT ON COLUMN ops.node_now.age_s IS 'seconds since the database last heard from its agent';
COMMENT ON COLUMN ops.node_now.n_faults IS 'faults its agent confirms right now';
COMMENT ON COLUMN ops.node_now.n_jobs IS 'jobs on the node right now';
COMMENT ON COLUMN ops.node_now.n_failing IS 'health checks whose latest outcome is fail or error';
COMMENT ON COLUMN ops.node_now.failing IS 'their names';
COMMENT ON COLUMN ops.node_now.drained IS 'true while it is drained (or down in Slurm), by whomever, as Slurm showed it at the last look';
COMMENT ON COLUMN ops.node_now.drain_reason IS 'the reason of that drain';
COMMENT ON COLUMN ops.node_now.drained_at IS 'when it was drained, UTC';
COMMENT ON COLUMN ops.node_now.lemon_score IS 'probability of being a lemon on the latest scored day, 0..1';
COMMENT ON COLUMN ops.node_now.drained_by IS 'us; slurm = slurmctld itself, which may also have set it down; another = a person, also by probing-ctl, or a program; null while it is not drained';
COMMENT ON COLUMN ops.node_now.lemon_verdict IS 'lemon, suspect, recovered or ok';

-- Everything known about one node in a span, in order: events, check changes, attempts, drains, notes.
-- Inputs   node; since, until; cluster: of that cluster only, null = every one that has a node of the name, each row with its cluster.
DROP FUNCTION IF EXISTS ops.node_timeline(text, timestamptz, timestamptz); -- until 0.1.0
CREATE OR REPLACE FUNCTION ops.node_timeline(
    node text,
    since timestamptz DEFAULT now() - interval '7 days',
    until timestamptz DEFAULT now() + interval '1 hour',
    of_cluster text DEFAULT NULL
) RETURNS TABLE (at timestamptz, what text, severity text, job_id bigint, device text, message text, cluster text)
LANGUAGE sql STABLE
AS $timeline$
    SELECT e.at, 'event ' || e.kind || coalesce(' ' || e.code, ''), e.severity, e.job_id, e.device,
           e.message || CASE WHEN e.count > 1 THEN format(' (%s times)', e.count) ELSE '' END, e.cluster
    FROM probing.health_event e
    WHERE (of_cluster IS NULL OR e.cluster = of_cluster) AND e.node = node_timeline.node AND e.at >= node_timeline.since AND e.at < node_timeline.until
    UNION ALL
    SELECT c.at, 'check ' || c.name || ' ' || c.outcome, c.severity, NULL, c.device, c.message, c.cluster
    FROM probing.check_result c
    WHERE (of_cluster IS NULL OR c.cluster = of_cluster) AND c.node = node_timeline.node AND c.at >= node_timeline.since AND c.at < node_timeline.until
    UNION ALL
    SELECT a.start_at, 'attempt starts', NULL, a.job_id, NULL, format('%s of %s, attempt %s', a.name, a."user", a.attempt), a.cluster
    FROM probing.job_attempt a
    WHERE (of_cluster IS NULL OR a.cluster = of_cluster) AND a.nodes @> ARRAY[node_timeline.node] AND a.start_at >= node_timeline.since AND a.start_at < node_timeline.until
    UNION ALL
    SELECT a.end_at, 'attempt ends ' || a.state, NULL, a.job_id, v.device, coalesce(v.summary, ''), a.cluster
    FROM probing.job_attempt a
    LEFT JOIN probing.verdict v
      ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
    WHERE (of_cluster IS NULL OR a.cluster = of_cluster) AND a.nodes @> ARRAY[node_timeline.node] AND a.end_at >= node_timeline.since AND a.end_at < node_timeline.until
    UNION ALL
    SELECT d.at, d.action || ' ' || d.state, d.severity, d.job_id, NULL, d.reason, d.cluster
    FROM ops.drains d
    WHERE (of_cluster IS NULL OR d.cluster = of_cluster) AND d.node = node_timeline.node AND d.at >= node_timeline.since AND d.at < node_timeline.until
    UNION ALL
    SELECT d.ended_at, d.action || ' lifted', d.severity, d.job_id, NULL, d.reason, d.cluster
    FROM probing.drain d
    WHERE (of_cluster IS NULL OR d.cluster = of_cluster) AND d.node = node_timeline.node AND d.ended_at >= node_timeline.since AND d.ended_at < node_timeline.until
    UNION ALL
    SELECT n.at, n.action || ' by ' || n.author, NULL, NULL, NULL, n.note, n.cluster
    FROM probing.operator_note n
    WHERE (of_cluster IS NULL OR n.cluster = of_cluster) AND n.subject = 'node:' || node_timeline.node AND n.at >= node_timeline.since AND n.at < node_timeline.until
    ORDER BY 1
$timeline$;
COMMENT ON FUNCTION ops.node_timeline(text, timestamptz, timestamptz, text) IS 'Everything known about one node in a span, in order: events, check changes, attempts, drains, notes.';
