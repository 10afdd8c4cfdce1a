-- The times at which each GPU was seen on each node, by the Prologs' records.
-- Inputs   :cluster (null = all); :since, :until (timestamptz); :partition, :users (null = all): nodes on which such an attempt ran; what was in
--          them is read from everybody's; :most (attempts that are read at most, about).
-- Output   cluster, node, gpu (UUID), first_at, last_at (start of the first attempt that held it there, end of the last one; running: :until, or when it must have ended),
--          n_held (attempts that held it), n_there (attempts that held any GPU of the node).
--          Of more than :most attempts every k-th job is read: a node runs dozens of jobs a day, and a card stays for months.
WITH recorded AS (
    SELECT a.cluster, a.job_id, a.start_at, coalesce(a.end_at, probing.ran_until(a), :until) AS end_at, a.gpus, a.partition, a."user"
    FROM probing.job_attempt a
    WHERE (CAST(:cluster AS text) IS NULL OR a.cluster = :cluster) AND a.start_at >= :since AND a.start_at < :until AND a.gpus IS NOT NULL
), every AS (
    SELECT greatest(1, ceil(count(*) / CAST(:most AS double precision)))::bigint AS k FROM recorded
), here AS (
    SELECT DISTINCT r.cluster, g.node
    FROM recorded r, LATERAL jsonb_object_keys(r.gpus) AS g(node)
    WHERE (CAST(:partition AS text) IS NULL OR r.partition = :partition)
      AND (CAST(:users AS text[]) IS NULL OR r."user" = ANY(CAST(:users AS text[])))
), held AS (
    SELECT r.cluster, g.key AS node, r.start_at, least(r.end_at, :until) AS end_at, g.value AS cards,
           count(*) OVER (PARTITION BY r.cluster, g.key) AS n_there
    FROM recorded r, every, LATERAL jsonb_each(r.gpus) AS g
    WHERE (hashint8(r.job_id) & 2147483647) % every.k = 0 AND jsonb_typeof(g.value) = 'array' AND jsonb_array_length(g.value) > 0
)
SELECT h.cluster, h.node, u.gpu, min(h.start_at) AS first_at, max(h.end_at) AS last_at, count(*) AS n_held, max(h.n_there) AS n_there
FROM held h
JOIN here USING (cluster, node), LATERAL jsonb_array_elements_text(h.cards) AS u(gpu)
WHERE u.gpu LIKE 'GPU-%'
GROUP BY h.cluster, h.node, u.gpu
ORDER BY h.cluster, h.node, min(h.start_at), u.gpu
