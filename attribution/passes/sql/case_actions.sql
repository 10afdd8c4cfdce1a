-- Actions on the attempts or on their nodes.
-- Inputs   :cluster; :job_ids; :nodes; :since, :until  bounds of the decision.
-- Output   every column of probing.drain.
SELECT d.*
FROM probing.drain d
WHERE d.cluster = :cluster
  AND d.at BETWEEN :since AND :until
  AND (d.job_id = ANY(:job_ids) OR d.node = ANY(:nodes))
ORDER BY d.at, d.drain_id
