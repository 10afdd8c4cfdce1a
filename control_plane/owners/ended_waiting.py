"""Jobs that mails are owed about and that ended while they waited: there is nothing to judge."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import handover
from probing_cluster.core import vocabulary
from probing_cluster.reports import query

_READ_WITHIN = timedelta(hours=1)
"""An end that was read earlier than this before its mail was owed is of an earlier job of the same number."""
_ANY, _SEVERAL = "", "["
"""Every row of a job's number, and those that name several tasks at once."""
_ENDS = """
select e.job_id, e.detail ->> 'job' as written, e.observed_at, coalesce(p.is_explained, true) as is_explained
from probing.health_event e
left join lateral (
    select count(*) filter (where o.is_readable and o.end_at is not null and o.state <> 'COMPLETED' and v.cause is null) = 0
           and (bool_or((o.is_readable and v.cause is not null) or n.state is not null)
                or bool_and(coalesce(o.state = 'COMPLETED' or not o.is_readable, false))) as is_explained
    from probing.job_dependency d
    left join lateral (
        -- The start that the report names (reports/sql/predecessors.sql); another user's job has no more to show.
        select l.*, l."user" = e.detail ->> 'user' and l.account = e.detail ->> 'account' as is_readable
        from (select distinct on (a.job_id) a.cluster, a.job_id, a.submit_at, a.state, a.end_at, a."user", a.account
              from probing.job_attempt a
              where a.cluster = d.cluster and (a.job_id = d.on_job_id or a.array_job_id = d.on_job_id or a.het_job_id = d.on_job_id)
                and a.submit_at <= e.at
              order by a.job_id, a.submit_at desc) l
        order by l.state = 'COMPLETED', l.end_at, l.job_id
        limit 1
    ) o on true
    left join lateral (
        select w.detail ->> 'state' as state
        from probing.health_event w
        where o.job_id is null and w.cluster = d.cluster and w.job_id = d.on_job_id and w.kind = e.kind and w.node = '' and w.at <= e.at
        limit 1
    ) n on true
    left join probing.verdict v
      on v.cluster = o.cluster and v.job_id = o.job_id and v.submit_at = o.submit_at and v.superseded_at is null
    -- Accounting names nobody behind a removal for a dependency: what ended the predecessor explains it, and nothing else.
    where e.detail ->> 'state' = 'CANCELLED' and coalesce(e.detail ->> 'cancelled_by', '') = '' and e.detail ->> 'reason' like 'Dependency%'
      and d.cluster = e.cluster and d.job_id = e.job_id and d.on_job_id > 0 and d.at <= e.at
) p on true
where e.cluster = :cluster and e.job_id = any(:jobs) and e.kind = :kind and e.node = '' and e.observed_at >= :since
"""


def ends(service: context.Context, owing: Collection[handover.OwedMail]) -> dict[handover.OwedMail, bool]:
    """Of these mails those whose job ended while it waited, and whether all that will be known of why is known."""
    if not owing:
        return {}
    given = {
        "cluster": service.config.cluster.name,
        "jobs": sorted({owed.ref.base for owed in owing}),
        "kind": vocabulary.NEVER_STARTED,
        "since": min(owed.at for owed in owing) - _READ_WITHIN,
    }
    by_name: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in service.store.rows(_ENDS, given):
        for name in (_ANY, row["written"] if "[" not in row["written"] else _SEVERAL):
            by_name.setdefault((row["job_id"], name), []).append(row)
    found: dict[handover.OwedMail, bool] = {}
    for owed in owing:
        ref = owed.ref
        # An array may have a thousand tasks with a mail and an end each.
        names = (_ANY,) if ref.task is None else (ref.name, _SEVERAL)
        rows = [row for name in names for row in by_name.get((ref.base, name), ())]
        explained = [
            row["is_explained"]
            for row in rows
            if row["observed_at"] >= owed.at - _READ_WITHIN
            and query.covers(row["written"], ref, is_whole=owed.array)
        ]
        if explained:
            found[owed] = all(explained)
    return found
