-- Faults that ended several attempts, or stood on many nodes, and began since an instant.
-- inputs:  cluster  text
--          since    timestamptz
-- output:  incident_id uuid, onset_at timestamptz, cause text, domain text, n_jobs bigint, nodes text[], summary text, place text (null: none named),
--          sure bool (a verdict of it is at least likely)
select incident_id, onset_at, cause, domain, n_jobs, nodes, summary, place,
    exists (
        select 1 from probing.verdict v
        where v.incident_id = i.incident_id and v.cluster = i.cluster and v.superseded_at is null
          and v.confidence in ('certain', 'likely')
    ) as sure
from ops.incidents i
where cluster = :cluster and onset_at >= :since
order by onset_at, incident_id
limit 1000
