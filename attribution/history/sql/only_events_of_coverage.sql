-- Of pg_events.sql's rows `q`: check results, and the evidence of attempts that infrastructure may have ended.
LEFT JOIN (
    SELECT DISTINCT unnest(v.evidence)::text AS event_id
    FROM (SELECT evidence FROM probing.verdict WHERE superseded_at IS NULL AND domain IN ('hardware', 'system_software')
          UNION ALL
          SELECT v.evidence FROM probing.job_attempt a JOIN probing.verdict v
          ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
          WHERE a.state IN ('NODE_FAIL', 'BOOT_FAIL')) v
) evidence ON evidence.event_id = q.event_id
WHERE evidence.event_id IS NOT NULL OR q.source = 'check'
