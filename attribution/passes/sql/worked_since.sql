-- Lasting faults of imported logs after which every GPU of the node did a whole job's work: somebody had reset it, whatever the log lacks.
-- Inputs   :cluster; :numbers, :nodes, :ats  parallel arrays, one entry per fault; :last  what started later tells nothing; :gpus  so many
--          GPUs on each of its nodes are all that a node has; :seconds  so long a job ran at least.
-- Output   n (the fault's number), gone_at (when the first such job started).
-- OFFSET 0: each node is looked up by itself, in the index of nodes, and once, however many faults it has.
WITH c AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:numbers AS int[]), CAST(:nodes AS text[]), CAST(:ats AS timestamptz[])) AS c(n, node, at)
), worked AS MATERIALIZED (
    SELECT f.node, a.start_at
    FROM (SELECT node, min(at) AS first_at FROM c GROUP BY node) f
    CROSS JOIN LATERAL (
        SELECT * FROM probing.job_attempt j
        WHERE j.nodes @> ARRAY[f.node]
        OFFSET 0
    ) a
    WHERE a.cluster = :cluster
      AND a.state = 'COMPLETED'
      AND a.start_at > f.first_at AND a.start_at <= :last
      AND a.end_at - a.start_at >= :seconds * interval '1 second'
      AND a.n_gpus >= :gpus * cardinality(a.nodes)
)
SELECT c.n, min(w.start_at) AS gone_at
FROM c
JOIN worked w ON w.node = c.node AND w.start_at > c.at
GROUP BY c.n
