-- Attempts that Slurm ended because it gave up a known node, in some spans.
-- Inputs   :cluster; :sinces, :untils  parallel arrays: the bounds of each span, both in it.
-- Output   job_id, submit_at, end_at, node; an attempt in two spans twice.
-- OFFSET 0: each span is looked up by itself, by its ends.
SELECT a.job_id, a.submit_at, a.end_at, a.node
FROM unnest(CAST(:sinces AS timestamptz[]), CAST(:untils AS timestamptz[])) AS w(since_at, until_at)
CROSS JOIN LATERAL (
    SELECT j.job_id, j.submit_at, j.end_at, coalesce(j.failed_node, j.nodes[1]) AS node
    FROM probing.job_attempt j
    WHERE j.end_at BETWEEN w.since_at AND w.until_at
      AND j.state = 'NODE_FAIL'
      AND j.start_at IS NOT NULL
      AND j.cluster = :cluster
      AND (j.failed_node IS NOT NULL OR cardinality(j.nodes) = 1)
    OFFSET 0
) a
