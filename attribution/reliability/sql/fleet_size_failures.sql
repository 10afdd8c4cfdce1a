-- Incidents by the size of the attempts they ended.
-- Inputs   view failure (failures.py). Output size (GPUs, a power of two), n_failures.
SELECT size, count(DISTINCT incident) AS n_failures
FROM failure
GROUP BY size
ORDER BY size
