-- Count the starts of some jobs anew: of exports each counts from the first start that it shows.
-- Inputs   :clusters, :jobs  parallel arrays. Output   none.
-- An id that Slurm used again has another owner or another name (attempt_rows.assemble); a row without a name is of any.
-- What was judged under another number is judged again.
UPDATE probing.job_attempt a
SET attempt = counted.nth, judged_at = NULL
FROM (
    SELECT named.*, row_number() OVER (PARTITION BY cluster, job_id, "user", name ORDER BY submit_at) AS nth
    FROM (
        SELECT b.cluster, b.job_id, b.submit_at, b."user",
               coalesce(nullif(b.name, ''), max(b.name) OVER (PARTITION BY b.cluster, b.job_id, b."user")) AS name
        FROM (SELECT DISTINCT cluster, job_id FROM unnest(CAST(:clusters AS text[]), CAST(:jobs AS bigint[])) AS g(cluster, job_id)) AS given
        JOIN probing.job_attempt b USING (cluster, job_id)
    ) AS named
) AS counted
WHERE (a.cluster, a.job_id, a.submit_at) = (counted.cluster, counted.job_id, counted.submit_at) AND a.attempt <> counted.nth
