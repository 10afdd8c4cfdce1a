-- Starts that were not known before: have those judged again whom they shared a node with or whose place they may have taken.
-- Inputs   :clusters, :jobs, :submits  parallel arrays: the keys of the attempts that started; :starts  when.
-- Who had a GPU in the days before tells whether an error follows the GPU. Who took the place of a preempted attempt starts up to a quarter of an hour after it (attribution's NEAR); what came after
-- an end is the next one's, and what came before may be a neighbour's, even where no verdict rests on it: it is ruled out for that.
UPDATE probing.job_attempt p SET judged_at = NULL
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]))
         AS g(cluster, job_id, submit_at, start_at)
JOIN probing.job_attempt s USING (cluster, job_id, submit_at)
WHERE p.cluster = s.cluster
  AND p.judged_at IS NOT NULL
  AND p.end_at BETWEEN g.start_at - interval '15 minutes' AND g.start_at + interval '8 days'
  AND p.nodes && s.nodes
  AND (p.job_id, p.submit_at) <> (s.job_id, s.submit_at)
