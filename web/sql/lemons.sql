-- Lemons and suspects of the latest scored day, likeliest first.
-- Inputs   cluster; after_score, after_node: the last row of the page before; n.
SELECT
    l.cluster, l.node, l.day, l.score, l.verdict, l.reasons, l.xid_cnt, l.tickets, l.out_count, l.excl_jobid_count,
    l.multi_node_node_fails, l.single_node_node_fails
FROM ops.lemons l
WHERE l.cluster = %(cluster)s
  AND (%(after_score)s::double precision IS NULL
       OR (l.score, l.node) < (%(after_score)s::double precision, %(after_node)s::text))
ORDER BY l.score DESC, l.node DESC
LIMIT %(n)s
