-- Starts that were not known before: note as late evidence for whom they shared a node with or whose place they may have taken.
-- Inputs   :clusters, :jobs, :submits  parallel arrays: the keys of the attempts that started; :starts  when.
-- Who took the place of a preempted attempt starts up to a quarter of an hour after it (attribution's NEAR). What came after an
-- end is the next one's, and what came before may be a neighbour's: that matters even where no verdict rests on it, since it
-- is ruled out for that.
-- Noted, not re-opened at once: whoever stores accounting holds rows that whoever stores verdicts may wait for.
-- OFFSET 0: by time, which is minutes, not by node, which is years.
INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
SELECT DISTINCT p.cluster, p.nodes[1], p.end_at, p.end_at, 0
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]))
         AS g(cluster, job_id, submit_at, start_at)
JOIN probing.job_attempt s USING (cluster, job_id, submit_at)
CROSS JOIN LATERAL (
    SELECT a.cluster, a.job_id, a.submit_at, a.end_at, a.nodes
    FROM probing.job_attempt a
    WHERE a.end_at BETWEEN g.start_at - interval '15 minutes' AND coalesce(s.end_at, 'infinity') + interval '1 hour'
      AND a.judged_at IS NOT NULL
    OFFSET 0
) p
WHERE p.cluster = s.cluster
  AND p.nodes && s.nodes
  AND (p.job_id, p.submit_at) <> (s.job_id, s.submit_at)
