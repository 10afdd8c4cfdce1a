-- Nodes that left service as lemons.
-- Inputs   :cluster (null = all); :since, :until (timestamptz).
-- Output   cluster, node, left_at: its first drain in the span that was carried out on a day whose score calls it a lemon, or on the day
--          after (a day is scored in the night that follows it).
SELECT d.cluster, d.node, min(d.at) AS left_at
FROM probing.drain d
JOIN probing.lemon_score s
  ON s.cluster = d.cluster AND s.node = d.node AND s.verdict = 'lemon' AND s.day > d.at - interval '2 days' AND s.day <= d.at
WHERE (CAST(:cluster AS text) IS NULL OR d.cluster = :cluster) AND d.action = 'drain' AND d.state IN ('done', 'resumed') AND d.at >= :since AND d.at < :until
GROUP BY d.cluster, d.node
ORDER BY left_at, d.node
