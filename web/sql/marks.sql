-- What the Now page shows has changed when any of these has: a cheap question, asked every second while somebody looks.
-- Of all clusters: the latest row of one could lie far behind those of the others, and a change elsewhere only has the page made anew.
SELECT
    (SELECT max(v.verdict_id) FROM probing.verdict v) AS verdict,
    (SELECT max(a.end_at) FROM probing.job_attempt a) AS ended,
    (SELECT max(d.at) FROM probing.drain d) AS decided,
    (SELECT count(*) FROM probing.drain d WHERE d.ended_at IS NULL AND d.state = 'done' AND d.at > now() - interval '90 days') AS open,
    (SELECT max(g.made_at) FROM probing.gang_verdict g) AS stalled,
    (SELECT md5(string_agg(h.node || h.faults::text || h.jobs::text, ',' ORDER BY h.node))
     FROM probing.agent_heartbeat h WHERE h.faults <> '{}'::jsonb) AS faults
