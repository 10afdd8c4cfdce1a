-- Starts that were not known before: note as late evidence for whom they shared a node with or whose place they may have taken.
-- Inputs   :clusters, :jobs, :submits  parallel arrays: the keys of the attempts that started; :starts  when.
-- Who took the place of a preempted attempt starts up to a quarter of an hour after it (attribution's NEAR). What came after an
-- end is the next one's, what came before may be a neighbour's, and who had a GPU in the days before tells whether an error
-- follows it: all that matters even where no verdict rests on it, since it is ruled out for that.
-- Noted, not re-opened at once: whoever stores accounting holds rows that whoever stores verdicts may wait for.
INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
SELECT DISTINCT p.cluster, p.nodes[1], p.end_at, p.end_at, 0
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]))
         AS g(cluster, job_id, submit_at, start_at)
JOIN probing.job_attempt s USING (cluster, job_id, submit_at)
JOIN probing.job_attempt p
  ON p.cluster = s.cluster
 AND p.end_at BETWEEN g.start_at - interval '15 minutes' AND g.start_at + interval '8 days'
 AND p.nodes && s.nodes
WHERE p.judged_at IS NOT NULL
  AND (p.job_id, p.submit_at) <> (s.job_id, s.submit_at)
