-- Events of some deliveries of the kinds that a fault of a shared part can cause. A delivery is given by its span.
-- Inputs   :cluster; :kinds  kinds of events; :nodes, :firsts, :lasts  parallel arrays: the
--          node of a delivery, the times of its earliest and its latest event.
-- Output   every column of probing.health_event.
-- OFFSET 0: each span is looked up by itself, by its node.
SELECT e.*
FROM (SELECT t.node, min(t.first_at) AS first_at, max(t.last_at) AS last_at
      FROM unnest(CAST(:nodes AS text[]), CAST(:firsts AS timestamptz[]), CAST(:lasts AS timestamptz[])) AS t(node, first_at, last_at)
      GROUP BY t.node, date_trunc('hour', t.first_at)) d
CROSS JOIN LATERAL (
    SELECT *
    FROM probing.health_event h
    WHERE h.node = d.node
      AND h.at BETWEEN d.first_at AND d.last_at
      AND h.kind = ANY(CAST(:kinds AS text[]))
      AND h.cluster = :cluster
      AND h.source NOT IN ('joblog', 'probe', 'dump')
    OFFSET 0
) e
