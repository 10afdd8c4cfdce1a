-- Failed attempts by size and by the incident that ended them.
-- Inputs   view failure (failures.py). Output size (GPUs, a power of two), n_failures (attempts of that size that one incident ended).
SELECT size, count(*) AS n_failures
FROM failure
GROUP BY size, incident
ORDER BY size, n_failures
