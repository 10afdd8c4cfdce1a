"""What agents' heartbeats report of the jobs on their nodes, and the attempts of those jobs that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from probing_cluster.core import clock, digits, errors, records

if TYPE_CHECKING:
    from probing_cluster.db import store as db_store

_ROWS = """
select node, sources -> cast(:source as text) -> 'jobs' as jobs
from probing.agent_heartbeat
where cluster = :cluster and sources -> cast(:source as text) -> 'jobs' <> '{}'
  and received_at > now() - interval '10 minutes'
order by node
"""


def of_jobs(store: db_store.Store, cluster: str, source: str) -> Iterator[tuple[int, str, Mapping[Any, Any]]]:
    """(job, node, report) of one source of every agent that was heard lately; what has another shape is left out."""
    for row in store.rows(_ROWS, {"cluster": cluster, "source": source}):
        jobs = row["jobs"] if isinstance(row["jobs"], Mapping) else {}
        for job_id, report in jobs.items():
            if isinstance(report, Mapping) and digits.is_number(str(job_id)):
                yield int(job_id), str(row["node"]), report


def instant(value: object) -> datetime | None:
    """A time that an agent reports; None where it is none."""
    try:
        return clock.require_utc("at", datetime.fromisoformat(str(value)))
    except (ValueError, errors.MalformedInput):
        return None


def running(store: db_store.Store, cluster: str, job_ids: Iterable[int]) -> dict[int, records.JobAttempt]:
    """The attempts of those of these jobs that run; of a requeued job the last one."""
    wanted = sorted(set(job_ids))
    attempts = store.attempts(job_ids=wanted, ended=False, cluster=cluster) if wanted else []
    return {a.job_id: a for a in attempts}
