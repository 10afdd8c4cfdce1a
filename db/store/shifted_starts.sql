-- Whether most starts of jobs that are stored already are stored with all their times moved by whole quarters of an hour: as of another zone.
-- Inputs   :clusters, :jobs, :submits, :starts, :ends  parallel arrays. Output   no row, or one: n (the first of them, from 1), ahead_s: how far
--          what is stored lies ahead, seconds.
-- Most: a job that is requeued at each time limit may wait and run for the same seconds twice. A job with several starts says nothing: those
-- of scrontab have one number for all their runs, each whole quarters of an hour after the last.
WITH given AS (
    SELECT *, count(*) OVER (PARTITION BY cluster, job_id) AS n_starts
    FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]),
                CAST(:ends AS timestamptz[])) WITH ORDINALITY AS t(cluster, job_id, submit_at, start_at, end_at, n)
), known AS (
    SELECT g.n, bool_or(a.submit_at = g.submit_at) AS is_same,
           min(extract(epoch FROM a.submit_at - g.submit_at)) FILTER (
               WHERE a.start_at - g.start_at = a.submit_at - g.submit_at AND a.end_at - g.end_at = a.submit_at - g.submit_at
                 AND abs(extract(epoch FROM a.submit_at - g.submit_at)) BETWEEN 900 AND 14 * 3600
                 AND extract(epoch FROM a.submit_at - g.submit_at) % 900 = 0
           )::double precision AS ahead_s
    FROM given g JOIN probing.job_attempt a USING (cluster, job_id)
    WHERE g.n_starts = 1
    GROUP BY g.n
    HAVING count(*) = 1
), moved AS (
    SELECT n, ahead_s, count(*) OVER () AS n_moved FROM known WHERE ahead_s IS NOT NULL AND NOT is_same
)
SELECT n, ahead_s FROM moved WHERE n_moved * 2 > (SELECT count(*) FROM known) ORDER BY n LIMIT 1
