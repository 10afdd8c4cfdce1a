-- Eleven months of a 2,000-node cluster (or less), made inside the server by benchmarks/db/full_size.py.
-- Sizes, states and the sorts of events follow benchmarks/attribution/generate.py. Every number is a hash of the row's own, so that two
-- fills are alike. Sections begin with `-- name`; `:low`, `:high` are the first and last row of a step, `:attempts` and `:events` how many
-- there are in all, `:nodes` and `:days` how large the cluster is and how long it was watched. Where a section names neither, it is asked once.

-- helpers
-- A number from 0 to p_below - 1 that depends on the row and on what it is for.
CREATE OR REPLACE FUNCTION pg_temp.pick(p_row bigint, p_for int, p_below int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN ((hashint8extended(p_row, p_for) & 2147483647) % p_below)::int;
CREATE OR REPLACE FUNCTION pg_temp.moment(p_row bigint, p_of bigint) RETURNS timestamptz LANGUAGE sql STABLE
RETURN date_trunc('second', now()) - interval '1 day' * :days * (1 - p_row::double precision / p_of);
-- A node; twenty of them ten times as often as the others.
CREATE OR REPLACE FUNCTION pg_temp.node(p_row bigint, p_for int) RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'n' || CASE WHEN pg_temp.pick(p_row, p_for, 11) = 0 THEN pg_temp.pick(p_row, p_for + 1, 20) * 97 % :nodes ELSE pg_temp.pick(p_row, p_for + 2, :nodes) END;

-- attempts
INSERT INTO probing.job_attempt (cluster, job_id, submit_at, attempt, eligible_at, start_at, end_at, suspended_s, state, exit_code,
    nodes, n_gpus, n_cpus, "user", account, partition, qos, name, time_limit_s, reason, run_key, judged_at)
SELECT 'bench', n - again, ended - took - waited, 1 + again, ended - took - waited, ended - took, ended, 0, state,
    CASE state WHEN 'COMPLETED' THEN 0 ELSE 1 END,
    ARRAY(SELECT 'n' || (pg_temp.pick(n, 5, :nodes) + i) % :nodes FROM generate_series(0, (gpus + 7) / 8 - 1) AS i),
    gpus, gpus * 12, 'u' || pg_temp.pick((n - again) / 40, 6, 300), 'a' || pg_temp.pick((n - again) / 40, 6, 300) % 20,
    CASE WHEN gpus < 8 THEN 'small' ELSE 'gpu' END, 'normal', 'train-' || pg_temp.pick((n - again) / 40, 7, 1000), 86400, '',
    -- One in four belongs to a training that its user named; the others are each a run of its own.
    CASE WHEN pg_temp.pick((n - again) / 40, 8, 4) = 0 THEN 'llm-' || (n - again) / 40 ELSE (n - again)::text END,
    CASE state WHEN 'COMPLETED' THEN NULL ELSE ended + interval '1 minute' END
FROM (
    SELECT n, pg_temp.moment(n, :attempts) AS ended,
        -- The attempt after a requeued one is the same job's.
        (pg_temp.pick(n - 1, 1, 1000) BETWEEN 972 AND 991)::int AS again,
        CASE WHEN s < 600 THEN 'COMPLETED' WHEN s < 840 THEN 'FAILED' WHEN s < 940 THEN 'PREEMPTED' WHEN s < 972 THEN 'CANCELLED'
             WHEN s < 992 THEN 'REQUEUED' WHEN s < 998 THEN 'TIMEOUT' WHEN s < 999 THEN 'NODE_FAIL' ELSE 'OUT_OF_MEMORY' END AS state,
        least(:nodes * 8, CASE WHEN g < 4200 THEN 1 WHEN g < 5200 THEN 2 WHEN g < 6200 THEN 4 WHEN g < 8630 THEN 8 WHEN g < 8930 THEN 16 WHEN g < 9130 THEN 32
             WHEN g < 9280 THEN 64 WHEN g < 9568 THEN 128 WHEN g < 9784 THEN 256 WHEN g < 9904 THEN 512 WHEN g < 9964 THEN 1024
             WHEN g < 9986 THEN 2048 ELSE 4096 END) AS gpus,
        interval '20 s' + interval '50 minutes' * -ln((1 + pg_temp.pick(n, 3, 100000)) / 100001.0) AS took,
        interval '1 s' * pg_temp.pick(n, 4, 3600) AS waited
    FROM generate_series(:low::bigint, :high::bigint) AS n,
        LATERAL (SELECT pg_temp.pick(n, 1, 1000) AS s, pg_temp.pick(n, 2, 10000) AS g) AS drawn
) AS made;

-- verdicts
-- Every attempt that did not complete has one; one in twenty had another before, which late evidence replaced. One hardware verdict in
-- four is of an incident with several victims; the others carry their own first evidence as their incident, as the judge gives it.
INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, component, node, device, confidence, summary,
    evidence, ruled_out, next_step, incident_id, onset_at, window_start_at, window_end_at, author, rules_version, made_at, superseded_at)
SELECT 'bench', job_id, submit_at, attempt, cause,
    CASE WHEN hard THEN 'hardware' WHEN cause IN ('filesystem_mount', 'node_fail') THEN 'system_software'
         WHEN cause IN ('python_exception', 'out_of_memory', 'timeout') THEN 'user_program' ELSE 'unknown' END,
    CASE WHEN hard THEN split_part(cause, '_', 1) END, CASE WHEN evident THEN nodes[1 + pg_temp.pick(n, 14, cardinality(nodes))] END,
    CASE WHEN hard THEN 'gpu' || pg_temp.pick(n, 15, 8) END, CASE WHEN evident THEN 'certain' ELSE 'likely' END,
    cause || ' ended the job', CASE WHEN evident THEN ARRAY[md5('e' || n)::uuid] ELSE '{}' END, ARRAY['gpu_lost: every GPU answered', 'node_fail: the node was heard'],
    'See the runbook of ' || cause,
    CASE WHEN evident AND pg_temp.pick(n, 16, 4) = 0 THEN md5('wide' || extract(epoch FROM end_at)::bigint / 2700)::uuid
         WHEN evident THEN md5('e' || n)::uuid END,
    end_at - interval '1 s' * pg_temp.pick(n, 17, 900), end_at - interval '10 minutes', end_at + interval '5 minutes', 'rules', '1',
    end_at + interval '1 minute' * version, CASE WHEN version = 1 AND late THEN end_at + interval '2 minutes' END
FROM (
    SELECT a.*, hashint8(job_id) + attempt AS n, pg_temp.pick(hashint8(job_id) + attempt, 12, 20) = 0 AS late, cause,
        cause IN ('gpu_lost', 'ib_link', 'gpu_memory_uncorrectable', 'pcie') AS hard,
        cause IN ('gpu_lost', 'ib_link', 'gpu_memory_uncorrectable', 'pcie', 'filesystem_mount', 'node_fail') AS evident
    FROM probing.job_attempt a,
        LATERAL (SELECT pg_temp.pick(hashint8(job_id) + attempt, 11, 1000) AS c) AS drawn,
        LATERAL (SELECT CASE state WHEN 'PREEMPTED' THEN 'preempted' WHEN 'CANCELLED' THEN 'cancelled' WHEN 'TIMEOUT' THEN 'timeout'
            WHEN 'NODE_FAIL' THEN 'node_fail' WHEN 'OUT_OF_MEMORY' THEN 'out_of_memory' ELSE
            CASE WHEN c < 700 THEN 'python_exception' WHEN c < 850 THEN 'unexplained' WHEN c < 890 THEN 'ib_link' WHEN c < 930 THEN 'gpu_lost'
                 WHEN c < 950 THEN 'gpu_memory_uncorrectable' WHEN c < 960 THEN 'pcie' ELSE 'filesystem_mount' END END AS cause) AS named
    WHERE state <> 'COMPLETED'
) AS judged
CROSS JOIN LATERAL generate_series(1, 1 + late::int) AS version;

-- events
WITH made AS (
    INSERT INTO probing.health_event (event_id, cluster, node, at, observed_at, kind, code, severity, device, pci_bus_id, job_id, count,
        source, message, detail)
    SELECT md5(n::text)::uuid, 'bench', pg_temp.node(n, 21), t, t + interval '1 s', kind, code, severity,
        CASE WHEN kind IN ('xid', 'throttle') THEN 'gpu' || pg_temp.pick(n, 25, 8) END, CASE WHEN kind IN ('xid', 'pcie_aer') THEN '0000:5e:00' END,
        CASE WHEN source = 'probe' THEN greatest(1, n * :attempts / :events - pg_temp.pick(n, 26, 100)) END, 1 + pg_temp.pick(n, 27, 3), source,
        CASE kind WHEN 'xid' THEN 'NVRM: Xid (PCI:0000:5e:00): ' || code || ', pid=4242, name=python3, Ch 00000008, intr 00000000'
                  ELSE kind || ' ' || code || ' seen at offset ' || n END,
        jsonb_build_object('boot_id', '7b0a3c1e-5a5e-4b7f-9f4e-0d5c1c2b3a49', 'seq', n, 'ts_us', n * 1000)
    FROM (
        SELECT n, pg_temp.moment(n, :events) AS t, sort[1] AS kind, sort[2] AS code, sort[3] AS severity, sort[4] AS source
        FROM generate_series(:low::bigint, :high::bigint) AS n, LATERAL (SELECT pg_temp.pick(n, 24, 100000) AS k) AS drawn,
            LATERAL (SELECT CASE WHEN k < 34000 THEN ARRAY['pcie_aer', 'corrected', 'info', 'kernel'] WHEN k < 54000 THEN ARRAY['edac', 'CE', 'info', 'kernel']
                WHEN k < 56000 THEN ARRAY['xid', '63', 'low', 'kernel'] WHEN k < 62000 THEN ARRAY['xid', '31', 'info', 'kernel']
                WHEN k < 66000 THEN ARRAY['xid', '13', 'info', 'kernel'] WHEN k < 74000 THEN ARRAY['xid', '43', 'info', 'kernel']
                WHEN k < 82000 THEN ARRAY['xid', '45', 'info', 'kernel'] WHEN k < 87000 THEN ARRAY['throttle', 'hw_slowdown', 'low', 'nvml']
                WHEN k < 90900 THEN ARRAY['nfs', 'recovered', 'info', 'kernel'] WHEN k < 93900 THEN ARRAY['hung_task', '120', 'info', 'kernel']
                WHEN k < 99900 THEN ARRAY['checkpoint', 'written', 'info', 'probe']
                WHEN k < 99930 THEN ARRAY['ib_link', 'port_down', 'high', 'sysfs'] WHEN k < 99960 THEN ARRAY['xid', '79', 'high', 'kernel']
                ELSE ARRAY['mount', 'missing', 'high', 'mount'] END AS sort) AS sorts
    ) AS seen
    RETURNING event_id, at
)
INSERT INTO probing.event_key (event_id, at, received_at) SELECT event_id, at, at FROM made;

-- runs
INSERT INTO probing.run_account (cluster, run_key, "user", start_at, end_at, n_gpus, n_attempts, wall_s, queued_s, productive_s, lost_to_replay_s,
    restart_s, checkpoint_s, suspended_s, idle_s, measured, ettr_measured, ettr_expected, made_at)
SELECT cluster, run_key, "user", min(submit_at), max(end_at), max(n_gpus), count(*), extract(epoch FROM max(end_at) - min(submit_at)), 600, 3000,
    60.0 * (count(*) - 1), 30.0 * count(*), 20, 0, 0, max(n_gpus) >= 8, 0.9, 0.92, max(end_at) + interval '2 minutes'
FROM probing.job_attempt GROUP BY cluster, run_key, "user" ORDER BY max(end_at);

-- gang verdicts
INSERT INTO probing.gang_verdict (gang_id, cluster, job_id, submit_at, kind, ranks, nodes, domain, confidence, summary, location, proof, evidence,
    onset_at, made_at, ended_at, detail)
SELECT md5('g' || job_id || ':' || attempt)::uuid, cluster, job_id, submit_at, 'dataloader', '{3}', nodes[1:1], 'user_program', 'likely', 'rank 3 waits for its data',
    'train.py:42', '{"did not arrive at all_reduce #4242"}', '{}', start_at + (end_at - start_at) / 2, start_at + (end_at - start_at) / 2 + interval '1 minute',
    end_at, jsonb_build_object('stacks', repeat('train.py:42 next ', 60))
FROM probing.job_attempt WHERE n_gpus >= 16 AND pg_temp.pick(job_id, 31, 25) = 0;

-- drains
-- Done, lifted after hours; about sixty stand. One in five was denied, skipped or only simulated.
INSERT INTO probing.drain (drain_id, cluster, node, at, action, reason, owner, state, why_state, severity, job_id, event_ids, detail, ended_at)
SELECT md5('d' || n)::uuid, 'bench', pg_temp.node(n, 41), t, action, 'probing: gpu_lost on gpu3', 'probing',
    CASE pg_temp.pick(n, 44, 10) WHEN 0 THEN 'denied' WHEN 1 THEN 'simulated' ELSE 'done' END, CASE pg_temp.pick(n, 44, 10) WHEN 0 THEN 'the budget is spent' ELSE '' END,
    'high', CASE action WHEN 'requeue' THEN n * :attempts / 30000 END, ARRAY[md5(n::text)::uuid], '{}',
    CASE WHEN action IN ('drain', 'refuse') AND t < now() - interval '20 hours' THEN t + interval '1 minute' * (30 + pg_temp.pick(n, 45, 1100)) END
FROM (
    SELECT n, pg_temp.moment(n, 30000) AS t, (ARRAY['drain', 'drain', 'resume', 'resume', 'requeue', 'refuse'])[1 + pg_temp.pick(n, 43, 6)] AS action
    FROM generate_series(1::bigint, 30000) AS n
) AS made;

-- notes
INSERT INTO probing.operator_note (note_id, cluster, at, author, subject, action, note, detail)
SELECT md5('o' || n)::uuid, 'bench', pg_temp.moment(n, 20000), 'ops' || n % 5,
    CASE WHEN n % 3 = 0 THEN 'attempt:' || n || ':' || n ELSE 'node:' || pg_temp.node(n, 51) END,
    (ARRAY['confirm', 'deny', 'repaired', 'ticket', 'note'])[1 + n % 5], 'reseated', '{}'
FROM generate_series(1::bigint, 20000) AS n;

-- requests
INSERT INTO probing.node_request (request_id, cluster, node, verb, job_id, detail, made_at, expires_at, delivered_at, acknowledged_at)
SELECT md5('q' || n)::uuid, 'bench', pg_temp.node(n, 61), (ARRAY['collect', 'collect', 'collect', 'recheck', 'refusal_permission'])[1 + n % 5],
    CASE WHEN n % 5 < 3 THEN n * :attempts / 1000000 END, '{}', t, t + interval '1 minute', CASE WHEN n % 50 > 0 THEN t + interval '3 s' END,
    CASE WHEN n % 50 > 1 THEN t + interval '5 s' END
FROM (SELECT n, pg_temp.moment(n, 1000000) AS t FROM generate_series(1::bigint, 1000000) AS n) AS made;

-- rejections
INSERT INTO probing.rejection (role_name, node, reason, day, n_rows, last_at, sample)
SELECT DISTINCT ON (node, reason, day) 'agent_' || node, node, reason, day, 1 + n % 100, day + interval '1 hour', repeat('x', 200)
FROM (
    SELECT n, pg_temp.node(n, 71) AS node, (ARRAY['another node', 'a time that is none', 'unknown severity', 'too long'])[1 + n % 4] AS reason,
        date_trunc('day', pg_temp.moment(n, 105000), 'UTC') AS day
    FROM generate_series(1, 105000) AS n
) AS made;

-- checks
-- A row per change: four per node and day.
INSERT INTO probing.check_result (cluster, node, name, outcome, severity, message, duration_s, timed_out, version, at, detail)
SELECT 'bench', 'n' || n % :nodes, 'check' || pg_temp.pick(n, 81, 15), (ARRAY['ok', 'ok', 'warn', 'fail'])[1 + pg_temp.pick(n, 82, 4)], 'low', 'what was found', 0.01,
    false, '1', pg_temp.moment(n, 2640000), '{}'
FROM generate_series(1::bigint, 2640000) AS n;

-- states
INSERT INTO probing.check_now SELECT r.* FROM generate_series(0, :nodes - 1) AS n, generate_series(1, 15) AS c, LATERAL jsonb_populate_record(
    NULL::probing.check_now,
    '{"cluster": "bench", "severity": "low", "message": "", "duration_s": 0, "timed_out": false, "version": "1", "detail": {}}'
    || jsonb_build_object('node', 'n' || n, 'name', 'check' || c, 'at', now(), 'outcome', CASE WHEN (n * 15 + c) % 400 = 0 THEN 'fail' ELSE 'ok' END)) AS r;

-- heartbeats
-- 18 sources and eight ranks each; one node in a hundred confirms a fault, one in two hundred is silent.
INSERT INTO probing.agent_heartbeat SELECT r.* FROM generate_series(0, :nodes - 1) AS n, LATERAL jsonb_populate_record(
    NULL::probing.agent_heartbeat,
    '{"cluster": "bench", "boot_id": "7b0a3c1e-5a5e-4b7f-9f4e-0d5c1c2b3a49", "version": "1", "beat_s": 10, "spool_depth": 0, "spool_bytes": 0,
      "lag_s": 0, "dropped_total": 0, "coalesced_total": 0, "rejected_total": 0, "hung_children": 0, "rss_bytes": 60000000, "cpu_s": 100}'
    || jsonb_build_object('node', 'n' || n, 'at', now(), 'received_at', now() + interval '1 hour' - CASE WHEN n % 200 = 7 THEN interval '1 day' ELSE interval '0' END,
        'unwatched', '{}', 'jobs', to_jsonb(ARRAY[n]), 'faults',
        CASE WHEN n % 100 = 3 THEN '{"xid:gpu3": {"severity": "high", "since": "2026-11-20T00:00:00Z", "message": "GPU has fallen off the bus"}}'::jsonb ELSE '{}' END,
        'sources', (SELECT jsonb_object_agg('source' || s, jsonb_build_object('state', 'ok', 'last_read', now(), 'reads_total', 100000, 'failures_total', 0, 'duration_s', 0.01))
                    FROM generate_series(1, 18) AS s),
        'ranks', (SELECT jsonb_object_agg(n || ':' || k, jsonb_build_object('pid', 4242 + k, 'alive', true, 'state', 'R', 'phase', 'training', 'steps', 100000,
                    'step_age_s', 0.4, 'inside', 'all_reduce default#4242', 'world_size', 4096, 'window', jsonb_build_object('n', 64, 'median_s', 0.41)))
                  FROM generate_series(0, 7) AS k))) AS r;

-- lemons
-- Every node every night, as the nightly run stores it; the 1 % that are lemons or suspects with all their failures.
INSERT INTO probing.lemon_score (cluster, node, day, excl_jobid_count, xid_cnt, tickets, out_count, multi_node_node_fails,
    single_node_node_fails, single_node_node_failure_rate, score, reasons, verdict, signals, made_at)
SELECT 'bench', 'n' || n, day, 0, n % 5, 0, n % 3, n % 4, n % 2, 0.01, CASE WHEN bad THEN 0.9 ELSE 0.02 END,
    CASE WHEN bad THEN ARRAY['5 jobs ended by it', '3 Xid codes'] ELSE '{}' END, CASE WHEN NOT bad THEN 'ok' WHEN n % 2 = 0 THEN 'lemon' ELSE 'suspect' END,
    '{"model": 1, "usual": 0.3, "expected": 0.4, "failed_at": ["2026-11-01T00:00:00Z"]}'::jsonb || CASE WHEN bad THEN
        jsonb_build_object('since', '2026-10-01T00:00:00Z', 'cost', '{"gpu_h": 512.5, "jobs": 9, "users": 5, "unknown_gpus": 0}'::jsonb,
            'failures', (SELECT jsonb_agg(jsonb_build_object('job_id', i, 'at', day, 'cause', 'gpu_lost', 'device', 'gpu3')) FROM generate_series(1, 20) AS i)) ELSE '{}' END,
    day + interval '4 hours'
FROM generate_series(0, :nodes - 1) AS n, generate_series(date_trunc('day', now(), 'UTC') - interval '1 day' * (:days - 1), date_trunc('day', now(), 'UTC'), interval '1 day') AS day,
    LATERAL (SELECT pg_temp.pick(n + extract(epoch FROM day)::bigint / 2592000 * 7919, 91, 100) = 0 AS bad) AS drawn;
