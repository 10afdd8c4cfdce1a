-- The jobs of the current verdicts with a cause or in a domain, at most n of them.
-- Inputs   cluster; cause, domain: null where not asked for; n.
SELECT v.job_id
FROM probing.verdict v
WHERE v.cluster = %(cluster)s AND v.superseded_at IS NULL
  AND (%(cause)s::text IS NULL OR v.cause = %(cause)s)
  AND (%(domain)s::text IS NULL OR v.domain = %(domain)s)
LIMIT %(n)s
