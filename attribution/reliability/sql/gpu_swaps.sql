-- The times at which each GPU was seen on each node, by the Prologs' records.
-- Inputs   :cluster (null = all); :since, :until (timestamptz); :partition, :users (null = all); :most (attempts that are read at most, about).
-- Output   cluster, node, gpu (UUID), first_at, last_at (start of the first attempt that held it there, end of the last one; running: :until, or when it must have ended).
--          Of more than :most attempts every k-th job is read: a node runs dozens of jobs a day, and a card stays for months.
WITH chosen AS (
    SELECT a.cluster, a.job_id, a.start_at, coalesce(a.end_at, probing.ran_until(a), :until) AS end_at, a.gpus
    FROM probing.job_attempt a
    WHERE (CAST(:cluster AS text) IS NULL OR a.cluster = :cluster) AND a.start_at >= :since AND a.start_at < :until AND a.gpus IS NOT NULL
      AND (CAST(:partition AS text) IS NULL OR a.partition = :partition)
      AND (CAST(:users AS text[]) IS NULL OR a."user" = ANY(CAST(:users AS text[])))
), every AS (
    SELECT greatest(1, ceil(count(*) / CAST(:most AS double precision)))::bigint AS k FROM chosen
)
SELECT c.cluster, g.key AS node, u.gpu, min(c.start_at) AS first_at, max(least(c.end_at, :until)) AS last_at
FROM chosen c, every, LATERAL jsonb_each(c.gpus) AS g, LATERAL jsonb_array_elements_text(g.value) AS u(gpu)
WHERE (hashint8(c.job_id) & 2147483647) % every.k = 0 AND jsonb_typeof(g.value) = 'array' AND u.gpu LIKE 'GPU-%'
GROUP BY c.cluster, g.key, u.gpu
ORDER BY c.cluster, g.key, min(c.start_at), u.gpu
