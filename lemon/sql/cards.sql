-- GPUs that showed faults in more than one node: the lemon may be the card.
-- Inputs   table event.
-- Output   gpu_uuid, node, n (fault events there), first_us, last_us; only UUIDs with two nodes or more.
SELECT e.gpu_uuid, e.node, count(*) AS n, min(e.at_us) AS first_us, max(e.at_us) AS last_us
FROM event e
WHERE e.gpu_uuid IS NOT NULL AND NOT e.job_side AND e.severity <> 'info'
  AND e.gpu_uuid IN (
      SELECT gpu_uuid FROM event WHERE gpu_uuid IS NOT NULL AND NOT job_side AND severity <> 'info'
      GROUP BY gpu_uuid HAVING count(DISTINCT node) > 1)
GROUP BY e.gpu_uuid, e.node
ORDER BY e.gpu_uuid, first_us
