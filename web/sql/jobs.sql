-- Attempts, latest start first: those the row policies show, and of these what the viewer's own words ask for.
-- Inputs   everything, viewer, accounts: what the viewer may see, said once more than the policies do (with no accounts, a user's
--          attempts are found by the user's index alone);
--          filters, null where not asked for; after_*: the last row of the page before; n: rows wanted.
SELECT
    a.cluster, a.job_id, a.ref, a.attempt, a.submit_at, a.user_name AS user, a.state, a.account, a.partition, a.qos, a.name,
    a.run_key, a.start_at, a.end_at, a.elapsed_s, a.exit_code, a.exit_signal, a.n_nodes, a.n_gpus,
    a.nodes[1:2000] AS nodes, a.cause, a.domain, a.component, a.node, a.device, a.confidence, a.summary, a.next_step,
    a.incident_id, a.author, a.place
FROM ops.attempt_verdicts a
WHERE a.start_at IS NOT NULL
  AND (%(everything)s OR a.user_name = %(viewer)s OR cardinality(%(accounts)s::text[]) > 0 AND a.account = ANY (%(accounts)s::text[]))
  AND (%(job_id)s::bigint IS NULL OR a.job_id = %(job_id)s)
  AND (%(user)s::text IS NULL OR a.user_name = %(user)s)
  AND (%(account)s::text IS NULL OR a.account = %(account)s)
  AND (%(partition)s::text IS NULL OR a.partition = %(partition)s)
  AND (%(state)s::text IS NULL OR a.state = %(state)s)
  AND (%(cause)s::text IS NULL OR a.cause = %(cause)s)
  AND (%(domain)s::text IS NULL OR a.domain = %(domain)s)
  AND (%(on_node)s::text IS NULL OR a.nodes @> ARRAY[%(on_node)s::text])
  AND (%(since)s::timestamptz IS NULL OR a.start_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR a.start_at < %(until)s)
  AND (%(running)s::boolean IS NULL OR (a.end_at IS NULL) = %(running)s)
  AND (%(after_at)s::timestamptz IS NULL
       OR (a.start_at, a.job_id, a.submit_at) < (%(after_at)s, %(after_job)s::bigint, %(after_submit)s::timestamptz))
ORDER BY a.start_at DESC, a.job_id DESC, a.submit_at DESC
LIMIT %(n)s
