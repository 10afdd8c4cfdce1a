-- Stalls that began in a span, and their ends by the log: a file server that does not answer, a task that waits.
-- The kernel grades them low because most pass; they end no job, but a person may end one because of them.
-- Inputs   :cluster; :nodes, :froms, :tos  parallel arrays: on which node they began, and in which stretch (half open) there;
--          :since, :until  bounds of all stretches; :last  a stall that ended later was
--          active; :kinds, :codes  parallel arrays, the sorts of stalls (code: lower case, null = any of the kind).
-- Output   every column of probing.health_event, and gone_at (null = no line reports its end).
SELECT h.*, gone.gone_at
FROM probing.health_event h
LEFT JOIN LATERAL (
    SELECT min(r.at) AS gone_at
    FROM probing.health_event r
    WHERE r.node = h.node
      AND r.cluster = h.cluster
      AND r.at > h.at AND r.at <= :last
      AND (r.kind = 'node_boot'
           OR (r.kind = h.kind AND r.code = 'recovered'
               AND (r.device = h.device OR r.device IS NULL OR h.device IS NULL)))
) gone ON true
WHERE h.cluster = :cluster
  AND EXISTS (SELECT FROM unnest(CAST(:nodes AS text[]), CAST(:froms AS timestamptz[]), CAST(:tos AS timestamptz[])) AS w(node, from_at, to_at)
              WHERE w.node = h.node AND h.at >= w.from_at AND h.at < w.to_at)
  AND h.at >= :since AND h.at < :until
  AND h.source IN ('kernel', 'import')
  AND EXISTS (SELECT FROM unnest(CAST(:kinds AS text[]), CAST(:codes AS text[])) AS s(kind, code)
              WHERE s.kind = h.kind AND (s.code IS NULL OR s.code = lower(h.code)))
