-- Starts that are stored already with all their times moved by the same whole quarters of an hour: one of the two was read in a wrong zone.
-- Inputs   :clusters, :jobs, :submits, :starts, :ends  parallel arrays. Output   n from 1, ahead_s: how far what is stored lies ahead, seconds.
-- A requeued job's starts differ by other spans of waiting and running.
SELECT g.n, extract(epoch FROM a.submit_at - g.submit_at)::double precision AS ahead_s
FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]),
            CAST(:ends AS timestamptz[])) WITH ORDINALITY AS g(cluster, job_id, submit_at, start_at, end_at, n)
JOIN probing.job_attempt a USING (cluster, job_id)
WHERE a.submit_at <> g.submit_at AND abs(extract(epoch FROM a.submit_at - g.submit_at)) <= 14 * 3600
  AND extract(epoch FROM a.submit_at - g.submit_at) % 900 = 0
  AND a.start_at - g.start_at = a.submit_at - g.submit_at AND a.end_at - g.end_at = a.submit_at - g.submit_at
  -- Of a start that is stored right, too, the other row is another start's.
  AND NOT EXISTS (SELECT FROM probing.job_attempt s WHERE (s.cluster, s.job_id, s.submit_at) = (g.cluster, g.job_id, g.submit_at))
ORDER BY g.n
LIMIT 1
