-- How old what is stored is: when accounting was last read, and how long ago any agent was heard.
-- Output   accounting_at text (ISO 8601), heard_s, n_nodes.
SELECT
    (SELECT s.value #>> '{}' FROM probing.state s WHERE s.key = 'accounting.until') AS accounting_at,
    (SELECT min(extract(epoch FROM now() - h.received_at)::double precision) FROM probing.agent_heartbeat h) AS heard_s,
    now() AS at
