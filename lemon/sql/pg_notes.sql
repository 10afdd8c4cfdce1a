-- People's notes about nodes, of any time.
-- Inputs   $1 bound (timestamptz): notes made before it; $2 cluster.
-- Output   node, at_us, action (confirm, deny, repaired, ticket), author, note, about_lemon (about the score, not about a fault).
SELECT substr(o.subject, 6) AS node, (extract(epoch FROM o.at) * 1000000)::bigint AS at_us, o.action, o.author, o.note,
       coalesce(o.detail -> 'lemon' = 'true'::jsonb, false) AS about_lemon
FROM probing.operator_note o
WHERE o.cluster = $2 AND o.at < $1 AND o.subject LIKE 'node:%' AND o.action IN ('confirm', 'deny', 'repaired', 'ticket')
