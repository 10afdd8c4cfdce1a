"""Jobs that hold GPUs and do nothing with them, as the agents of their nodes see it: shown and mailed, never acted on."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from probing_cluster.control_plane import agent_reports
from probing_cluster.core import hostlist, records
from probing_cluster.reports import phrase

if TYPE_CHECKING:
    from probing_cluster.db import store as db_store

WHY = {
    "no_program": "runs no process of its own",
    "no_process": "has no process on its GPUs",
    "no_load": "puts no load on its GPUs",
}
"""The reason that an agent gives, to what it means; the most certain first."""


@records.record
class HeldJob:
    """One job that has held GPUs idle."""

    job_id: int = records.doc("raw job id")
    ref: str = records.doc("the job as its owner names it")
    user: str = records.doc("its owner; empty when not known", default="")
    partition: str = records.doc("its partition; empty when not known", default="")
    since: datetime = records.doc("since when all of these nodes have been idle, UTC")
    nodes: tuple[str, ...] = records.doc("the nodes on which it is idle")
    words: str = records.doc("what it does not do, where, and for how long")


def read(store: db_store.Store, cluster: str, idle_s: float, now: datetime) -> list[HeldJob]:
    """Every job that has been idle for `idle_s` on some node of it; none when that is 0."""
    if idle_s <= 0:
        return []
    by_job: dict[int, list[tuple[str, datetime, str]]] = {}
    attempts: dict[int, records.JobAttempt] = {}
    for attempt, node, idle in agent_reports.of_jobs(store, cluster, "held"):
        # What an agent says is checked like a user's.
        since, why = agent_reports.instant(idle.get("since")), str(idle.get("why"))
        if why in WHY and since is not None and (now - since).total_seconds() >= idle_s:
            attempts[attempt.job_id] = attempt
            by_job.setdefault(attempt.job_id, []).append((node, since, why))
    return [_held(attempts[job_id], rows) for job_id, rows in sorted(by_job.items())]


def _held(attempt: records.JobAttempt, rows: list[tuple[str, datetime, str]]) -> HeldJob:
    nodes = tuple(sorted({node for node, _, _ in rows}))
    since = max(at for _, at, _ in rows)
    order = list(WHY)
    why = max((why for _, _, why in rows), key=order.index)  # what is true on all of them
    all_of = set(nodes) >= set(attempt.nodes)
    where = "" if all_of and len(nodes) == 1 else f" on {hostlist.compress(nodes)}"
    some = "" if all_of else f" ({len(nodes)} of its {len(attempt.nodes)} nodes)"
    return HeldJob(
        job_id=attempt.job_id,
        ref=attempt.ref,
        user=attempt.user,
        partition=attempt.partition,
        since=since,
        nodes=nodes,
        words=f"{WHY[why]}{where}{some} since {phrase.stamp_z(since)}",
    )
