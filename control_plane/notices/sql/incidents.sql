-- Faults that ended several attempts, or stood on many nodes, and began since an instant.
-- inputs:  cluster  text
--          since    timestamptz
-- output:  incident_id uuid, onset_at timestamptz, cause text, domain text, n_jobs bigint, nodes text[], summary text, place text (null: none named)
select incident_id, onset_at, cause, domain, n_jobs, nodes, summary, place
from ops.incidents
where cluster = :cluster and onset_at >= :since
order by onset_at, incident_id
limit 1000
