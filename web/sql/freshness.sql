-- How old what is stored of a cluster is: when its accounting was last read, and how long ago any of its agents was heard.
-- Inputs   cluster.
-- Output   accounting_at text (ISO 8601), heard_s, at.
SELECT
    (SELECT s.value #>> '{}' FROM probing.state s WHERE s.key = 'accounting.until ' || CAST(:cluster AS text)) AS accounting_at,
    (SELECT min(extract(epoch FROM now() - h.received_at)::double precision) FROM probing.agent_heartbeat h WHERE h.cluster = :cluster) AS heard_s,
    now() AS at
