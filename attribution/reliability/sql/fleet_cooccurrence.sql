-- Which causes were seen together in the evidence of one infrastructure failure.
-- Inputs   view base; tables event (event_id, kind, code, severity, recovered) and signature (kind, code, severity, recovered, cause, root).
-- Output   blamed (cause of the verdict), other (a cause another piece of its evidence points at; '' = the failure itself), n.
WITH failed AS (
    SELECT cluster, job_id, submit_us, coalesce(cause, 'unjudged') AS blamed, evidence
    FROM base
    WHERE infra AND ended
), told AS (
    SELECT cluster, job_id, submit_us, blamed, unnest(evidence) AS event_id FROM failed WHERE evidence IS NOT NULL
), seen AS (
    SELECT DISTINCT t.cluster, t.job_id, t.submit_us, t.blamed, s.cause AS other
    FROM told t
    JOIN event e ON e.event_id = t.event_id
    JOIN signature s ON s.kind = e.kind AND s.code = coalesce(e.code, '') AND s.severity = e.severity AND s.recovered = e.recovered
    WHERE s.root
)
SELECT blamed, other, count(*) AS n FROM seen WHERE other <> blamed GROUP BY blamed, other
UNION ALL
SELECT blamed, '' AS other, count(*) AS n FROM failed GROUP BY blamed
ORDER BY 1, 2
