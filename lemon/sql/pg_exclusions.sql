-- Jobs whose user excluded a node.
-- Inputs   $1, $2 bounds of when it was first seen (timestamptz); $3 cluster.
-- Output   node, job_id, at_us.
SELECT x.node, x.job_id, (extract(epoch FROM x.at) * 1000000)::bigint AS at_us
FROM probing.job_exclusion x
WHERE x.cluster = $3 AND x.at >= $1 AND x.at < $2
