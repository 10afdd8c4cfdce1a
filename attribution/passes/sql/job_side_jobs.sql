-- Jobs whose job side (log tails, dumps, rank pages) reported any event in a span, or that an agent refused. That a log's steps went on says something only
-- beside a fault of the job's nodes.
-- Inputs   :job_ids  Slurm job ids; :since, :until  bounds of the events' time.
-- Output   job_id.
SELECT DISTINCT e.job_id
FROM probing.health_event e
WHERE e.job_id = ANY(:job_ids)
  AND (e.source IN ('joblog', 'probe', 'dump') OR (e.source = 'agent' AND e.code = 'prolog_refused')) AND e.kind <> 'log_progress'
  AND e.at BETWEEN CAST(:since AS timestamptz) - interval '30 minutes' AND CAST(:until AS timestamptz) + interval '30 minutes'
