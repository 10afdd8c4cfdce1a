-- Attempts of every cluster by job id, user, name or run, latest first, of those that the viewer may see.
-- Inputs   everything, viewer, accounts; job_id, or array_id and task, or het_id and component: null where the word names no such; word.
SELECT DISTINCT ON (f.job_id, f.cluster) f.cluster, f.job_id, f.ref, f."user", f.name, f.state, f.cause
FROM (
    (SELECT a.cluster, a.job_id, a.ref, a.user_name AS "user", a.name, a.state, a.cause, a.account, a.start_at FROM ops.attempt_verdicts a
     WHERE a.job_id = ANY (ARRAY(
         SELECT t.job_id FROM probing.job_attempt t WHERE t.job_id = %(job_id)s::bigint
         UNION
         SELECT t.job_id FROM probing.job_attempt t WHERE t.array_job_id = %(array_id)s::bigint AND t.array_task_id = %(task)s::bigint
         UNION
         SELECT t.job_id FROM probing.job_attempt t WHERE t.het_job_id = %(het_id)s::bigint AND t.het_offset = %(component)s::bigint
     ))
     ORDER BY a.submit_at DESC LIMIT 5)
    UNION ALL
    (SELECT a.cluster, a.job_id, a.ref, a.user_name, a.name, a.state, a.cause, a.account, a.start_at FROM ops.attempt_verdicts a
     WHERE a.user_name = %(word)s AND a.start_at IS NOT NULL ORDER BY a.start_at DESC LIMIT 10)
    UNION ALL
    (SELECT a.cluster, a.job_id, a.ref, a.user_name, a.name, a.state, a.cause, a.account, a.start_at FROM ops.attempt_verdicts a
     WHERE a.run_key = %(word)s LIMIT 10)
) f
WHERE %(everything)s OR f."user" = %(viewer)s OR f.account = ANY (%(accounts)s::text[])
ORDER BY f.job_id DESC, f.cluster, f.start_at DESC NULLS LAST
LIMIT 20
