-- Findings of the jobs' own side (log tails, dumps, probe pages), for the attempts to be judged.
-- Inputs   :job_ids  Slurm job ids; :since, :until  bounds of the events' time.
-- Output   every column of probing.health_event.
SELECT e.*
FROM probing.health_event e
WHERE e.cluster = :cluster AND e.job_id = ANY(:job_ids)
  AND e.source IN ('joblog', 'probe', 'dump')
  AND e.at BETWEEN :since AND :until
ORDER BY e.at, e.event_id
