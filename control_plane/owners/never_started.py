"""Jobs that mails are owed about and that ended while they waited: there is nothing to judge."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.core import vocabulary

_READ_WITHIN = timedelta(hours=1)
"""An end that was read earlier than this before its mail was owed is of an earlier job of the same number."""
_ENDS = """
select e.job_id,
       bool_and(not exists (select from probing.job_dependency d
                            where d.cluster = :cluster and d.job_id = e.job_id and d.on_job_id > 0)
                or exists (select from probing.job_dependency d
                           join probing.job_attempt a
                             on a.cluster = :cluster and (a.job_id = d.on_job_id or a.array_job_id = d.on_job_id or a.het_job_id = d.on_job_id)
                           where d.cluster = :cluster and d.job_id = e.job_id and a.judged_at is not null)
                or exists (select from probing.job_dependency d
                           join probing.health_event n
                             on n.cluster = :cluster and n.job_id = d.on_job_id and n.kind = e.kind and n.node = ''
                           where d.cluster = :cluster and d.job_id = e.job_id and n.observed_at >= :since)) as is_explained
from probing.health_event e
where e.cluster = :cluster and e.job_id = any(:jobs) and e.kind = :kind and e.node = '' and e.observed_at >= :since
group by e.job_id
"""


def ends(service: context.Context, jobs: Collection[int], owed_since: datetime) -> dict[int, bool]:
    """Of these jobs those that ended while they waited, and whether something that they waited for has its own verdict or end."""
    if not jobs:
        return {}
    given = {
        "cluster": service.config.cluster.name,
        "jobs": sorted(jobs),
        "kind": vocabulary.NEVER_STARTED,
        "since": owed_since - _READ_WITHIN,
    }
    return {row["job_id"]: row["is_explained"] for row in service.store.rows(_ENDS, given)}
