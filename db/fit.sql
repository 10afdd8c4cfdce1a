-- What a row of an agent must be for everybody to read it: the door's measure of shape, size and range.
-- Inputs   a row as the agent gave it, JSON.
-- Output   is_plain, is_detail: true when every reader can read it. wrong_row: why it may not be stored, null when it may;
--          few words, the same ones each time, for they are counted. fit_rows: the rows that may, and the others counted.
-- What one node stores, every pass over all nodes reads: numbers that only Postgres holds, or a list in the place of an object,
-- would end all of them.

-- Numbers fit a double, and nothing lies deeper than every parser goes.
CREATE OR REPLACE FUNCTION probing.is_plain(p jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $plain$
    SELECT NOT jsonb_path_exists(p, 'strict $.** ? (@ > 1e300 || @ < -1e300)', silent => true)
       AND NOT jsonb_path_exists(p, 'strict $.**{41 to last}', silent => true)
$plain$;

CREATE OR REPLACE FUNCTION probing.is_detail(p text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $detail$
DECLARE
    v jsonb;
BEGIN
    v := p; -- here, not above: an error there is not caught
    RETURN jsonb_typeof(v) = 'object' AND probing.is_plain(v);
EXCEPTION WHEN untranslatable_character THEN
    RAISE; -- a NUL in its text: the agent's side mends that and sends the row again
WHEN OTHERS THEN
    RETURN false;
END
$detail$;

-- Centuries before the last that clients can hold: they add and take away.
CREATE OR REPLACE FUNCTION probing.is_time(p timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $time$ SELECT p >= '1970-01-01' AND p < '9000-01-01' $time$;

-- NaN is greater than every number.
CREATE OR REPLACE FUNCTION probing.is_measure(p double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $measure$ SELECT p IS NULL OR p BETWEEN -1e300 AND 1e300 $measure$;

-- An event whose words are the node's own; whose cluster and node they are is the caller's business.
CREATE OR REPLACE FUNCTION probing.is_event(
    p_event_id uuid, p_at timestamptz, p_severity text, p_kind text, p_source text, p_detail text
) RETURNS boolean
LANGUAGE sql STABLE
AS $event$
    SELECT p_event_id IS NOT NULL AND p_severity IN ('info', 'low', 'high') AND probing.is_time(p_at)
       AND p_kind IS NOT NULL AND p_source IS NOT NULL
       AND (p_detail IS NULL OR length(p_detail) > 65536 OR probing.is_detail(p_detail))
$event$;

-- Events as they are stored: text no longer than anybody reads, numbers that every reader can hold. One row per element, n from 1.
CREATE OR REPLACE FUNCTION probing.shortened_events(
    e_event_id uuid[], e_at timestamptz[], e_observed_at timestamptz[], e_kind text[], e_code text[], e_severity text[], e_device text[],
    e_pci_bus_id text[], e_gpu_uuid text[], e_pid bigint[], e_process text[], e_job_id bigint[], e_count bigint[],
    e_last_at timestamptz[], e_source text[], e_message text[], e_measured double precision[], e_threshold double precision[],
    e_unit text[], e_detail text[]
) RETURNS TABLE (
    event_id uuid, at timestamptz, observed_at timestamptz, kind text, code text, severity text, device text, pci_bus_id text,
    gpu_uuid text, pid bigint, process text, job_id bigint, count bigint, last_at timestamptz, source text, message text,
    measured double precision, threshold double precision, unit text, detail jsonb, n bigint
)
LANGUAGE sql STABLE -- without settings of its own, so that the query that calls it takes it in
AS $shortened$
    SELECT
        u.event_id, u.at, CASE WHEN probing.is_time(u.observed_at) THEN u.observed_at ELSE now() END,
        left(u.kind, 100), left(u.code, 200), u.severity,
        left(u.device, 500), left(u.pci_bus_id, 100), left(u.gpu_uuid, 100), u.pid, left(u.process, 500), u.job_id,
        greatest(u.count, 1),
        CASE WHEN probing.is_time(u.last_at) THEN u.last_at END,
        left(u.source, 100), left(coalesce(u.message, ''), 4096),
        CASE WHEN probing.is_measure(u.measured) THEN u.measured END,
        CASE WHEN probing.is_measure(u.threshold) THEN u.threshold END,
        left(u.unit, 50),
        CASE WHEN length(u.detail) > 65536 THEN '{"truncated": true}' ELSE coalesce(u.detail, '{}') END::jsonb,
        u.n
    FROM unnest(
        e_event_id, e_at, e_observed_at, e_kind, e_code, e_severity, e_device, e_pci_bus_id, e_gpu_uuid, e_pid,
        e_process, e_job_id, e_count, e_last_at, e_source, e_message, e_measured, e_threshold, e_unit, e_detail
    ) WITH ORDINALITY AS u(
        event_id, at, observed_at, kind, code, severity, device, pci_bus_id, gpu_uuid, pid,
        process, job_id, count, last_at, source, message, measured, threshold, unit, detail, n
    )
$shortened$;

-- One fault of a heartbeat: words where words belong, and times that Python reads as well as Postgres.
CREATE OR REPLACE FUNCTION probing.is_fault(p jsonb) RETURNS boolean
LANGUAGE sql STABLE
AS $fault$
    SELECT jsonb_typeof(p) = 'object'
       AND p ->> 'severity' IN ('info', 'low', 'high')
       AND NOT EXISTS (
           SELECT FROM unnest(ARRAY['kind', 'code', 'device', 'severity', 'since', 'confirmed_at', 'event_id', 'gpu_uuid',
                                    'pci_bus_id', 'source', 'message']) AS name
           WHERE jsonb_typeof(p -> name) NOT IN ('string', 'null'))
       AND NOT EXISTS (
           SELECT FROM unnest(ARRAY[p ->> 'since', p ->> 'confirmed_at']) AS at
           WHERE NOT (at ~ '^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|\+00:00)$'
                      AND probing.is_time(at::timestamptz)))
       AND coalesce(jsonb_typeof(p -> 'latched') IN ('boolean', 'null'), true)
       AND CASE jsonb_typeof(coalesce(p -> 'event_ids', 'null')) WHEN 'null' THEN true
           WHEN 'array' THEN jsonb_array_length(p -> 'event_ids') <= 100
                             AND NOT EXISTS (SELECT FROM jsonb_array_elements(p -> 'event_ids') AS id
                                             WHERE jsonb_typeof(id) <> 'string' OR (id #>> '{}')::uuid IS NULL)
           ELSE false END
       AND (p ->> 'event_id')::uuid IS NOT DISTINCT FROM (p ->> 'event_id')::uuid -- a uuid, or an error
$fault$;

CREATE OR REPLACE FUNCTION probing.is_heartbeat(r probing.agent_heartbeat, p jsonb) RETURNS boolean
LANGUAGE sql STABLE
AS $heartbeat$
    SELECT probing.is_time(r.at) AND (r.started_at IS NULL OR probing.is_time(r.started_at))
       AND length(r.boot_id) <= 200 AND length(r.version) <= 200
       AND r.beat_s > 0 AND r.beat_s <= 86400
       AND r.lag_s BETWEEN 0 AND 1e12 AND r.cpu_s BETWEEN 0 AND 1e12
       AND (SELECT bool_and((n BETWEEN 0 AND 1000000000000000000) IS TRUE)
            FROM unnest(ARRAY[r.spool_depth, r.spool_bytes, r.dropped_total, r.coalesced_total, r.rejected_total,
                              r.hung_children, r.rss_bytes]) AS n)
       AND coalesce(array_ndims(r.jobs), 1) = 1 AND cardinality(r.jobs) <= 10000 AND array_position(r.jobs, NULL) IS NULL
       AND jsonb_typeof(r.sources) = 'object' AND jsonb_typeof(r.faults) = 'object' AND jsonb_typeof(r.ranks) = 'object'
       -- Of ranks every one is measured alone: they are the job's word, and no job may silence its node.
       AND probing.is_plain(p - 'ranks')
       AND NOT EXISTS (SELECT FROM jsonb_each(r.sources) AS s WHERE jsonb_typeof(s.value) <> 'object')
       AND NOT EXISTS (SELECT FROM jsonb_each(r.faults) AS f WHERE length(f.key) > 1000 OR probing.is_fault(f.value) IS NOT TRUE)
$heartbeat$;

CREATE OR REPLACE FUNCTION probing.is_check(r probing.check_result, p jsonb) RETURNS boolean
LANGUAGE sql STABLE
AS $check$
    SELECT r.name <> '' AND length(r.name) <= 200 AND probing.is_time(r.at)
       AND r.outcome IN ('ok', 'warn', 'fail', 'error', 'absent') AND r.severity IN ('info', 'low', 'high')
       AND r.message IS NOT NULL AND r.version IS NOT NULL AND r.timed_out IS NOT NULL
       AND r.duration_s BETWEEN 0 AND 1e12
       AND probing.is_measure(r.measured) AND probing.is_measure(r.threshold)
       AND jsonb_typeof(r.detail) = 'object' AND probing.is_plain(p)
$check$;

CREATE OR REPLACE FUNCTION probing.is_allocation(r probing.job_allocation, p jsonb) RETURNS boolean
LANGUAGE sql STABLE
AS $allocation$
    SELECT r.job_id >= 0 AND probing.is_time(r.at) AND (r.released_at IS NULL OR probing.is_time(r.released_at))
       AND r.restart_count >= 0 AND (r.uid IS NULL OR r.uid >= 0)
       AND r.gpu_indices IS NOT NULL
       AND (r.gpu_uuids IS NULL OR coalesce(array_ndims(r.gpu_uuids), 1) = 1 AND array_position(r.gpu_uuids, NULL) IS NULL)
       AND jsonb_typeof(r.detail) = 'object' AND probing.is_plain(p)
$allocation$;

CREATE OR REPLACE FUNCTION probing.wrong_row(p_sort text, p jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $wrong$
DECLARE
    v_own jsonb;
    v_fits boolean;
BEGIN
    IF jsonb_typeof(p) <> 'object' THEN
        RETURN p_sort || ': no object';
    END IF;
    v_own := p - '{cluster,node,received_at,unwatched}'::text[]; -- these are the door's
    IF p_sort = 'heartbeat' THEN
        v_fits := probing.is_heartbeat(jsonb_populate_record(NULL::probing.agent_heartbeat, probing.usual_row(p_sort) || v_own), v_own);
    ELSIF octet_length(p::text) > 131072 THEN
        RETURN p_sort || ': more than 128 KiB';
    ELSIF p_sort = 'check' THEN
        v_fits := probing.is_check(jsonb_populate_record(NULL::probing.check_result, probing.usual_row(p_sort) || v_own), v_own);
    ELSE
        v_fits := probing.is_allocation(jsonb_populate_record(NULL::probing.job_allocation, probing.usual_row(p_sort) || v_own), v_own);
    END IF;
    RETURN CASE WHEN v_fits THEN NULL ELSE p_sort || ': malformed' END;
EXCEPTION WHEN OTHERS THEN
    RETURN p_sort || ': ' || SQLSTATE;
END
$wrong$;

-- The fields of a row that an older agent does not know.
CREATE OR REPLACE FUNCTION probing.usual_row(p_sort text) RETURNS jsonb
LANGUAGE sql IMMUTABLE
AS $usual$
    SELECT CASE p_sort
        WHEN 'check' THEN '{"message": "", "duration_s": 0, "timed_out": false, "version": "1", "detail": {}}'::jsonb
        WHEN 'allocation' THEN '{"restart_count": 0, "gpu_indices": "", "detail": {}}'
        WHEN 'heartbeat' THEN
            '{"boot_id": "", "version": "", "beat_s": 10, "spool_depth": 0, "spool_bytes": 0, "lag_s": 0,
              "dropped_total": 0, "coalesced_total": 0, "rejected_total": 0, "hung_children": 0, "rss_bytes": 0,
              "cpu_s": 0, "sources": {}, "faults": {}, "jobs": [], "ranks": {}}'
    END
$usual$;

CREATE OR REPLACE FUNCTION probing.fit_rows(p_sort text, INOUT p_rows jsonb, OUT p_wrong jsonb, OUT p_n_wrong bigint)
LANGUAGE plpgsql STABLE
AS $fit$
BEGIN
    SELECT coalesce(jsonb_agg(jsonb_build_object('reason', x.why, 'n_rows', x.n, 'sample', x.sample)), '[]'), coalesce(sum(x.n), 0)
    INTO p_wrong, p_n_wrong
    FROM (
        SELECT w.why, count(*) AS n, left(min(e.one::text), 400) AS sample
        FROM jsonb_array_elements(p_rows) AS e(one), probing.wrong_row(p_sort, e.one) AS w(why)
        WHERE w.why IS NOT NULL
        GROUP BY w.why
    ) AS x;
    IF p_n_wrong > 0 THEN
        SELECT coalesce(jsonb_agg(e.one ORDER BY e.n), '[]') INTO p_rows
        FROM jsonb_array_elements(p_rows) WITH ORDINALITY AS e(one, n)
        WHERE probing.wrong_row(p_sort, e.one) IS NULL;
    END IF;
END
$fit$;

-- A heartbeat's ranks without those that nobody could read.
CREATE OR REPLACE FUNCTION probing.fit_ranks(p_ranks jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE
AS $ranks$
    SELECT coalesce(jsonb_object_agg(r.key, r.value), '{}')
    FROM jsonb_each(p_ranks) AS r
    WHERE jsonb_typeof(r.value) = 'object' AND r.key ~ '^[0-9]{1,10}:(pid)?[0-9]{1,10}$' AND probing.is_plain(r.value)
$ranks$;
