"""What agents' heartbeats report of the jobs on their nodes, and the attempts of those jobs that run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
_MOST_JOB_ID = 1 << 40


def of_jobs(
    store: db_store.Store, cluster: str, source: str
) -> list[tuple[records.JobAttempt, str, Mapping[Any, Any]]]:
    """(attempt, node, report) of one source of every agent that was heard lately, of jobs that run there by accounting.

    Whoever holds a node's certificate may name any job; of a requeued job it is the last attempt.
    """
    found = list(_reports(store, cluster, source))
    wanted = sorted({job_id for job_id, _, _ in found})
    attempts = store.attempts(job_ids=wanted, ended=False, cluster=cluster) if wanted else []
    running = {a.job_id: a for a in attempts}
    return [
        (running[job_id], node, report)
        for job_id, node, report in found
        if job_id in running and node in running[job_id].nodes
    ]


def _reports(
    store: db_store.Store, cluster: str, source: str
) -> Iterator[tuple[int, str, Mapping[Any, Any]]]:
    """What has another shape is left out."""
    for row in store.rows(_ROWS, {"cluster": cluster, "source": source}):
        jobs = row["jobs"] if isinstance(row["jobs"], Mapping) else {}
        for job_id, report in jobs.items():
            if isinstance(report, Mapping) and digits.is_number(str(job_id)) and int(job_id) < _MOST_JOB_ID:
                yield int(job_id), str(row["node"]), report


def instant(value: object) -> datetime | None:
    """A time that an agent reports; None where it is none."""
    try:
        return clock.require_utc("at", datetime.fromisoformat(str(value)))
    except (ValueError, errors.MalformedInput):
        return None
