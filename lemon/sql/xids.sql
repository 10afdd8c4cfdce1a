-- How often each Xid was seen on each node.
-- Inputs   table event; $recent_us.
-- Output   node, code, n.
SELECT node, code, sum(n) AS n FROM event WHERE kind = 'xid' AND NOT job_side AND at_us >= $recent_us GROUP BY node, code ORDER BY node, code
