-- Events in some spans, cluster-wide, that a fault of a shared part can cause: to find one fault on many nodes.
-- Inputs   :cluster; :kinds, :codes  parallel arrays of sorts of events (code in lower case; null = any, ending in * = every code that
--          begins so); :others  sorts of those kinds that never can (kind, blank, lower-case code); :xids  the codes among them that are Xids';
--          :sinces, :untils  parallel arrays: the bounds of each span, both in it; :first, :last  the bounds of them all.
-- Output   every column of probing.health_event; an event in two spans twice.
-- OFFSET 0: each span is looked up by itself; put together with the others, the planner reads every partition whole.
-- With the overall bounds it leaves out other months' partitions. Xids, of which there are many, have an index of their own.
SELECT e.*
FROM unnest(CAST(:sinces AS timestamptz[]), CAST(:untils AS timestamptz[])) AS w(since_at, until_at)
CROSS JOIN LATERAL (
    SELECT *
    FROM probing.health_event h
    WHERE h.at BETWEEN CAST(:first AS timestamptz) AND CAST(:last AS timestamptz)
      AND h.at BETWEEN w.since_at AND w.until_at
      AND ((h.kind <> 'xid' AND h.kind = ANY(CAST(:kinds AS text[])))
           OR (h.kind = 'xid' AND h.code = ANY(CAST(:xids AS text[]))))
      AND h.cluster = :cluster
      AND h.kind || ' ' || lower(coalesce(h.code, '')) <> ALL (CAST(:others AS text[]))
      AND h.source NOT IN ('joblog', 'probe', 'dump')
    OFFSET 0
) e
WHERE EXISTS (SELECT 1 FROM unnest(CAST(:kinds AS text[]), CAST(:codes AS text[])) AS s(kind, code)
              WHERE s.kind = e.kind
                AND (s.code IS NULL OR s.code = lower(coalesce(e.code, ''))
                     OR (s.code LIKE '%*' AND starts_with(lower(e.code), left(s.code, -1)))))
