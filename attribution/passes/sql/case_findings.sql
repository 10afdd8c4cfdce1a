-- Findings of the jobs' own side (log tails, dumps, probe pages), and the agents' refusals of these jobs, for the attempts to be judged.
-- A refusal may lie before the window: Slurm may date the end of a refused start to when it was put back in the queue.
-- Inputs   :job_ids  Slurm job ids; :since, :until  bounds of the events' time.
-- Output   every column of probing.health_event.
SELECT e.*
FROM probing.health_event e
WHERE e.cluster = :cluster AND e.job_id = ANY(:job_ids)
  AND (e.source IN ('joblog', 'probe', 'dump') OR (e.source = 'agent' AND e.code = 'prolog_refused'))
  AND e.at BETWEEN :since AND :until
ORDER BY e.at, e.event_id
