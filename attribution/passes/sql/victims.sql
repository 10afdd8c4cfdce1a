-- The rules' current verdicts of some causes that rest on any of some events.
-- Inputs   :cluster; :causes; :ids  the events; :since, :until  the times of the earliest and the latest of them.
-- Output   cluster, job_id, submit_at, incident_id, place, evidence.
-- A verdict's evidence began a week before its window at most, or came soon after the end.
SELECT v.cluster, v.job_id, v.submit_at, v.incident_id, v.place, v.evidence
FROM probing.job_attempt a
JOIN probing.verdict v
  ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.submit_at = a.submit_at AND v.superseded_at IS NULL
WHERE a.cluster = :cluster
  AND a.end_at BETWEEN CAST(:since AS timestamptz) - interval '1 day' AND CAST(:until AS timestamptz) + interval '8 days'
  AND a.judged_at IS NOT NULL
  AND v.author = 'rules'
  AND v.cause = ANY(:causes)
  AND v.evidence && CAST(:ids AS uuid[])
