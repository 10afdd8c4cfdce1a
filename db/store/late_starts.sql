-- Starts that were not known before: note as late evidence for whom they shared a node with or whose place they may have taken.
-- Inputs   :clusters, :jobs, :submits  parallel arrays: the keys of the attempts that started; :starts  when.
-- Who took the place of a preempted attempt starts up to a quarter of an hour after it (attribution's NEAR). What came after an
-- end is the next one's, and what came before may be a neighbour's: that matters even where no verdict rests on it, since it
-- is ruled out for that.
-- Noted, not re-opened at once: whoever stores accounting holds rows that whoever stores verdicts may wait for.
-- By time first, which is minutes, not by node, which is years; then along each node's time, counting who is there: start by start the
-- work would grow with the square of the cluster, and a join is planned from guesses.
INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)
WITH started AS MATERIALIZED (
    SELECT s.cluster, s.job_id, s.submit_at, n.node, g.start_at - interval '15 minutes' AS from_at,
           coalesce(s.end_at, 'infinity') + interval '1 hour' AS to_at
    FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[]), CAST(:submits AS timestamptz[]), CAST(:starts AS timestamptz[]))
             AS g(cluster, job_id, submit_at, start_at)
    JOIN probing.job_attempt s USING (cluster, job_id, submit_at)
    CROSS JOIN LATERAL unnest(s.nodes) AS n(node)
), mark AS (
    SELECT cluster, node, from_at AS at, 0 AS turn, 1 AS step, NULL AS first_node, 0 AS n_own FROM started
    UNION ALL
    SELECT cluster, node, to_at, 2, -1, NULL, 0 FROM started
    UNION ALL
    SELECT a.cluster, n.node, a.end_at, 1, 0, a.nodes[1],
           ((a.cluster, a.job_id, a.submit_at) IN (SELECT cluster, job_id, submit_at FROM started))::int
    FROM probing.job_attempt a
    CROSS JOIN LATERAL unnest(a.nodes) AS n(node)
    WHERE a.end_at >= (SELECT min(from_at) FROM started) AND a.end_at <= (SELECT max(to_at) FROM started)
      AND a.judged_at IS NOT NULL
)
SELECT DISTINCT cluster, first_node, at, at, 0
FROM (SELECT mark.*, sum(step) OVER (PARTITION BY cluster, node ORDER BY at, turn ROWS UNBOUNDED PRECEDING) AS n_there FROM mark) AS counted
WHERE turn = 1 AND n_there > n_own
