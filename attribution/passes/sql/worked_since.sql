-- Lasting faults of imported logs after which a job used every GPU of the node and completed: the fault was over, although the log lacks the reset.
-- Inputs   :cluster; :numbers, :nodes, :ats  parallel arrays, one entry per fault; :last  a job that started later does not count; :least_gpus  a
--          node has at least so many GPUs; :seconds  least runtime of the job.
-- Output   n (the fault's number), gone_at (when the first such job started).
-- A node has as many GPUs as the largest attempt on it, of any time, held of each of its nodes.
-- OFFSET 0: each node is looked up by itself, in the index of nodes, and once, however many faults it has.
WITH c AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:numbers AS int[]), CAST(:nodes AS text[]), CAST(:ats AS timestamptz[])) AS c(n, node, at)
), ran AS MATERIALIZED (
    SELECT f.node, f.first_at, a.state, a.start_at, a.end_at, a.n_gpus / cardinality(a.nodes)::float8 AS gpus
    FROM (SELECT node, min(at) AS first_at FROM c GROUP BY node) f
    CROSS JOIN LATERAL (
        SELECT * FROM probing.job_attempt j
        WHERE j.nodes @> ARRAY[f.node]
        OFFSET 0
    ) a
    WHERE a.cluster = :cluster AND a.start_at IS NOT NULL AND a.n_gpus > 0
), whole AS MATERIALIZED (
    SELECT node, greatest(max(gpus), :least_gpus) AS gpus FROM ran GROUP BY node
), worked AS MATERIALIZED (
    SELECT r.node, r.start_at
    FROM ran r
    JOIN whole w ON w.node = r.node AND r.gpus >= w.gpus
    WHERE r.state = 'COMPLETED'
      AND r.start_at > r.first_at AND r.start_at <= :last
      AND r.end_at - r.start_at >= :seconds * interval '1 second'
)
SELECT c.n, min(w.start_at) AS gone_at
FROM c
JOIN worked w ON w.node = c.node AND w.start_at > c.at
GROUP BY c.n
