"""A stall seen on one node of a job: the other nodes are asked what their ranks are doing, once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.control_plane import context
from probing_cluster.core import records

LOOK_BACK = timedelta(seconds=120)
"""A stall told longer ago is history: its job has been looked at, or has ended."""
REQUEST_TTL_S = 60.0
KINDS = ("rank_stall", "rank_dead")


def run(service: context.Context) -> str:
    """Asks every node of each job that has just stalled for its ranks; names the jobs."""
    now = service.clock.now()
    told = service.store.events(since=now - LOOK_BACK, kinds=KINDS)
    latest = {e.job_id: e for e in told if e.job_id is not None}
    fresh = {job: e for job, e in latest.items() if service.stalls.get(job) != e.event_id}
    service.stalls = {job: e.event_id for job, e in latest.items()}
    if not fresh:
        return ""
    asked = 0
    for attempt in service.store.attempts(job_ids=sorted(fresh), ended=False):
        asked += _ask(service, attempt, told_on=fresh[attempt.job_id].node)
    return f"jobs {', '.join(map(str, sorted(fresh)))}: {asked} nodes asked"


def _ask(service: context.Context, attempt: records.JobAttempt, *, told_on: str) -> int:
    others: Iterable[str] = [n for n in attempt.nodes if n != told_on]
    asked = 0
    for node in others:
        service.store.request(node, "collect", attempt.job_id, REQUEST_TTL_S, cluster=attempt.cluster)
        asked += 1
    return asked


TASK = context.Task(
    name="gangs",
    meaning="asks all nodes of a stalled job what their ranks are doing",
    run=run,
    every_s=lambda _: 2.0,
)
