-- Node events that may change a verdict: those around some attempts, and those of the day before that may reach into a window.
-- Inputs   $1 cluster; $2, $3 bounds of the windows (timestamptz); $4, $5 parallel arrays: kind and code (lower case, '' = none) of
--          events that never do.
-- Output   node, at, last_at, kind, code, severity, source, recovered.
SELECT e.node, e.at, e.last_at, e.kind, e.code, e.severity, e.source,
       coalesce(e.detail -> 'recovered' = 'true'::jsonb, false) AS recovered
FROM probing.health_event e
LEFT JOIN unnest($4::text[], $5::text[]) AS inert(kind, code) ON inert.kind = e.kind AND inert.code = lower(coalesce(e.code, ''))
WHERE e.at BETWEEN $2::timestamptz - interval '24 hours' AND $3
  AND (e.at >= $2 OR e.severity = 'high' OR e.last_at >= $2)
  AND e.cluster = $1
  AND e.source NOT IN ('joblog', 'probe', 'dump')
  AND inert.kind IS NULL
