-- The score that each word of a person's answers: that node's of the last whole day before.
-- A score of a day covers all of it and is made the night after: the score of the day of the word has seen the word.
-- Inputs   cluster; nodes, ats: arrays, a node and the time of the word each.
-- Output   lemon_score's columns; of the signals only `model`, and no reasons: the rest is twenty times as large, and people answer for years.
SELECT DISTINCT (jsonb_populate_record(x.score, jsonb_build_object(
    'reasons', '[]'::jsonb, 'signals', jsonb_strip_nulls(jsonb_build_object('model', (x.score).signals -> 'model'))
))).*
FROM unnest(CAST(:nodes AS text[]), CAST(:ats AS timestamptz[])) AS g(node, at)
CROSS JOIN LATERAL (
    SELECT s AS score FROM probing.lemon_score s
    WHERE s.cluster = :cluster AND s.node = g.node AND s.day + interval '24 hours' <= g.at
    ORDER BY s.day DESC
    LIMIT 1
) AS x
