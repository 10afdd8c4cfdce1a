-- Lasting faults of imported logs after which every GPU of the node did a whole job's work: somebody had reset it, whatever the log lacks.
-- Inputs   :cluster; :numbers, :nodes, :ats  parallel arrays, one entry per fault; :last  what started later tells nothing; :gpus  so many
--          GPUs on each of its nodes are all that a node has; :seconds  so long a job ran at least.
-- Output   n (the fault's number), gone_at (when the first such job started).
-- OFFSET 0: each fault's node is looked up by itself, in the index of nodes.
SELECT c.n, w.gone_at
FROM unnest(CAST(:numbers AS int[]), CAST(:nodes AS text[]), CAST(:ats AS timestamptz[])) AS c(n, node, at)
CROSS JOIN LATERAL (
    SELECT min(a.start_at) AS gone_at
    FROM (
        SELECT * FROM probing.job_attempt j
        WHERE j.nodes @> ARRAY[c.node]
        OFFSET 0
    ) a
    WHERE a.cluster = :cluster
      AND a.state = 'COMPLETED'
      AND a.start_at > c.at AND a.start_at <= :last
      AND a.end_at - a.start_at >= :seconds * interval '1 second'
      AND a.n_gpus >= :gpus * cardinality(a.nodes)
) w
WHERE w.gone_at IS NOT NULL
