-- Each attempt on each of its nodes, clipped to the window and to the time after a person dealt with the node: one that ended before
-- that begins after its end, is no use of the node any more (pieces.sql), and is counted.
-- Inputs   table attempt, table cleared; $since_us, $until_us.
-- Output   view place: node, start_us, end_us, n_nodes, ended.
SELECT p.node, greatest(p.start_us, $since_us, coalesce(c.at_us, $since_us)) AS start_us,
       least(coalesce(p.end_us, $until_us), $until_us) AS end_us, p.n_nodes,
       p.end_us IS NOT NULL AND p.end_us >= $since_us AND p.end_us < $until_us AS ended
FROM (SELECT unnest(a.nodes) AS node, a.start_us, a.end_us, a.n_nodes FROM attempt a) p
LEFT JOIN cleared c ON c.node = p.node
WHERE p.start_us < $until_us AND (p.end_us IS NULL OR p.end_us >= $since_us)
