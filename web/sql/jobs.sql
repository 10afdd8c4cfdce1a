-- Attempts, latest start first: those the row policies show, and of these what the viewer's own words ask for.
-- Inputs   cluster; everything, viewer, accounts: what the viewer may see, said once more than the policies do (with no accounts, a user's
--          attempts are found by the user's index alone);
--          filters, null where not asked for; after_*: the last row of the page before; n: rows wanted.
--          few: the jobs that a rare cause or domain ended (few_verdicts.sql); null where it is not asked for, or not rare.
-- Attempt by attempt, latest first, each with its verdict: the key is unique, so LIMIT 1 changes no row, but keeps the planner, which
-- takes three columns of one key for independent, from reading every verdict ever given.
SELECT
    a.cluster, a.job_id, probing.job_ref(a) AS ref, a.attempt, a.submit_at, a."user" AS user, a.state, a.account, a.partition, a.qos, a.name,
    a.run_key, a.start_at, a.end_at, extract(epoch FROM a.end_at - a.start_at)::double precision AS elapsed_s,
    a.exit_code, a.exit_signal, cardinality(a.nodes) AS n_nodes, a.n_gpus,
    a.nodes[1:2000] AS nodes, v.cause, v.domain, v.component, v.node, v.device, v.confidence, v.summary, v.next_step,
    v.incident_id, v.author, v.place, v.log_read
FROM probing.job_attempt a
LEFT JOIN LATERAL (
    SELECT f.*
    FROM probing.verdict f
    WHERE f.job_id = a.job_id AND f.submit_at = a.submit_at AND f.cluster = a.cluster AND f.superseded_at IS NULL
    LIMIT 1
) v ON true
WHERE a.cluster = %(cluster)s AND a.start_at IS NOT NULL
  AND (%(everything)s OR a."user" = %(viewer)s OR cardinality(%(accounts)s::text[]) > 0 AND a.account = ANY (%(accounts)s::text[]))
  AND (%(job_id)s::bigint IS NULL OR a.job_id = %(job_id)s)
  AND (%(user)s::text IS NULL OR a."user" = %(user)s)
  AND (%(account)s::text IS NULL OR a.account = %(account)s)
  AND (%(partition)s::text IS NULL OR a.partition = %(partition)s)
  AND (%(state)s::text IS NULL OR a.state = %(state)s)
  AND (%(cause)s::text IS NULL OR v.cause = %(cause)s)
  AND (%(domain)s::text IS NULL OR v.domain = %(domain)s)
  AND (%(few)s::bigint[] IS NULL OR a.job_id = ANY (%(few)s::bigint[]))
  AND (%(on_node)s::text IS NULL OR a.nodes @> ARRAY[%(on_node)s::text])
  AND (%(since)s::timestamptz IS NULL OR a.start_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR a.start_at < %(until)s)
  AND (%(running)s::boolean IS NULL OR (a.end_at IS NULL) = %(running)s)
  AND (%(after_at)s::timestamptz IS NULL
       OR (a.start_at, a.job_id, a.submit_at) < (%(after_at)s, %(after_job)s::bigint, %(after_submit)s::timestamptz))
ORDER BY a.start_at DESC, a.job_id DESC, a.submit_at DESC
LIMIT %(n)s
