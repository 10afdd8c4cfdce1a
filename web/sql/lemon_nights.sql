-- The scored nights of a cluster, latest first: one look into the index a night, whatever the nodes.
-- Inputs   cluster; n.
-- Output   day; n_lemons: nodes named lemon that night.
WITH RECURSIVE night (day) AS (
    SELECT max(s.day) FROM probing.lemon_score s WHERE s.cluster = %(cluster)s
    UNION ALL
    SELECT (SELECT max(s.day) FROM probing.lemon_score s WHERE s.cluster = %(cluster)s AND s.day < n.day)
    FROM night n
    WHERE n.day IS NOT NULL
)
SELECT f.day,
       (SELECT count(*) FROM probing.lemon_score s
        WHERE s.cluster = %(cluster)s AND s.day = f.day AND s.verdict = 'lemon' AND s.verdict IN ('lemon', 'suspect')) AS n_lemons
FROM (SELECT n.day FROM night n WHERE n.day IS NOT NULL LIMIT %(n)s) f
ORDER BY f.day DESC
