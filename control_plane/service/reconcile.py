"""Decisions whose outcome was not recorded, since the service ended in between: Slurm says what became of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.core import errors, records, vocabulary

_LOOK_BACK = timedelta(days=7)
_BY_HAND = timedelta(seconds=vocabulary.UNDER_WAY_S)
"""A person's drain is not under the turn: it may be under way for so long."""
_NEAR = timedelta(minutes=2)
"""An attempt that we requeued ended no further from our decision than this."""
NOT_DONE = "Slurm did not answer, and it was not done, or it was lifted since"
AFTER = "found so afterwards: the service ended before it recorded the outcome"


def unrecorded(service: context.Context, now: datetime) -> list[records.Drain]:
    """Decisions that were begun and have no outcome. Of our own, under the turn, nobody can be at work on one."""
    begun = service.store.drains(
        since=now - _LOOK_BACK,
        states=["failed"],
        actions=["drain", "requeue", "refuse", "resume"],
        cluster=service.cluster,
    )
    return [
        d
        for d in begun
        if d.why_state in {view.BEGUN, view.OUTCOME_UNKNOWN}
        and "hang" not in d.detail
        and (d.owner == "probing" or now - d.at > _BY_HAND)
    ]


def settle(service: context.Context, now: datetime) -> list[str]:
    """Give each its outcome by what Slurm shows; what was found, in words."""
    found = []
    for drain in unrecorded(service, now):
        state, why = _outcome(service, drain)
        if state == "failed" and drain.why_state == view.OUTCOME_UNKNOWN:
            # What a person asked for is not decided anew: they hear that it was not done.
            state, why = ("skipped", view.DECIDED_ANEW) if drain.owner == "probing" else (state, NOT_DONE)
        service.store.update_drain(drain.drain_id, state=state, why_state=why)
        found.append(f"{drain.action} {drain.node} {state}, {AFTER}")
    return found


def _outcome(service: context.Context, drain: records.Drain) -> tuple[str, str]:
    if drain.action == "drain":
        return _of_drain(service.slurm.node(drain.node), drain)
    if drain.action == "requeue" and drain.job_id is not None:
        return _of_requeue(service, drain, drain.job_id)
    return "failed", "the service ended before it was done; another follows while the fault stands"


def _of_drain(node: view.Node | None, drain: records.Drain) -> tuple[str, str]:
    if node is None:
        return "failed", "the service ended before it was recorded, and Slurm knows no such node"
    if node.ours and node.reason == drain.reason:
        return "done", AFTER
    states = "+".join(sorted(node.states)) or "in service"
    return "failed", f"the service ended before it was done, or it was lifted since: Slurm shows {states}"


def _of_requeue(service: context.Context, drain: records.Drain, job_id: int) -> tuple[str, str]:
    try:
        job = service.slurm.job(job_id)
    except errors.MalformedInput as exc:  # its owner wrote Slurm's keys into its name
        return "failed", f"the service ended before it was recorded, and {exc}"
    if job is not None and job.start_at is not None and job.start_at <= drain.at:
        return "failed", "the service ended before it was done: the job runs on"
    attempts = service.store.attempts(job_ids=[job_id], cluster=drain.cluster)
    requeued = any(
        a.state == "REQUEUED" and a.end_at is not None and abs(a.end_at - drain.at) <= _NEAR for a in attempts
    )
    if job is not None or requeued:
        return "done", AFTER
    return (
        "failed",
        "the service ended before it was recorded, and the job no longer runs: it may have been done",
    )
