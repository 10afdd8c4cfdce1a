-- Lost nodes that live: attempts that Slurm ended for a node it had given up, judged within a minute of that, whose node's agent has
-- been heard since. Whether it lived on could not be known then. A machine that stood still as a whole is the common case.
-- Inputs: none. The minute is attribution's (`STILL_ALIVE` in verdict/node_faults.py).
-- Output   one row: n_reopened (attempts to be judged again, each once).
WITH reopened AS (
    UPDATE probing.job_attempt a SET judged_at = NULL
    WHERE a.state IN ('NODE_FAIL', 'BOOT_FAIL')
      AND a.end_at BETWEEN now() - interval '1 day' AND now() - interval '1 minute'
      AND a.judged_at <= a.end_at + interval '1 minute'
      AND EXISTS (SELECT FROM probing.agent_heartbeat h
                  WHERE h.cluster = a.cluster AND h.node = ANY (a.nodes) AND least(h.at, h.received_at) > a.end_at + interval '1 minute')
    RETURNING 1
)
SELECT count(*) AS n_reopened FROM reopened
