"""Nodes we drained, back into service when hysteresis says so; adopted, escalated or left as they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context, hysteresis, reconcile, turn, view
from probing_cluster.core import errors, records

_BEGUN = "resume begun; its outcome was not recorded"


def run(service: context.Context) -> str:
    """One look at every node of ours that is drained; what was done."""
    follow_beats(service)
    standing = [d for d in service.store.drains(open_only=True) if d.action == "drain"]
    if not standing or service.config.policy.observe_only:
        return ""
    with turn.taken(service, "resume") as mine:
        if not mine:
            return ""
        nodes = {n.name: n for n in service.hands.nodes()}
        told = [_one(service, drain, nodes.get(drain.node)) for drain in standing]
    return ", ".join(t for t in told if t)


def follow_beats(service: context.Context) -> None:
    """Keep every node's green time up to date."""
    ages = service.store.heartbeat_ages_s()
    beats = {b.node: b for b in service.store.heartbeats()}
    for node, beat in beats.items():
        green = hysteresis.follow(service.green.get(node), beat, ages.get(node))
        if green is None:
            service.green.pop(node, None)
        else:
            service.green[node] = green


def _one(service: context.Context, drain: records.Drain, node: view.Node | None) -> str:
    now = service.clock.now()
    if node is None:
        return ""
    if not node.ours:
        if not node.hands_off and drain.why_state == _BEGUN:
            service.store.update_drain(
                drain.drain_id, state="resumed", ended_at=now, why_state=reconcile.AFTER
            )
            return f"{drain.node} resumed, {reconcile.AFTER}"
        if not node.hands_off:
            # A person put it back: the drain is over, and their word stands.
            service.store.update_drain(
                drain.drain_id, ended_at=now, state="resumed", why_state="lifted by another"
            )
            return f"{drain.node} lifted by another"
        return ""
    if drain.owner != "probing":
        return ""  # a person drained it through probing-ctl: theirs to lift
    past = service.store.drains(
        node=drain.node, since=drain.at - timedelta(days=service.config.policy.escalate_days)
    )
    if hysteresis.latest(past, drain.node) != drain:
        return _superseded(service, drain, now)
    verdict, why = hysteresis.judge(_patient(service, drain, node, past), service.config.policy, now)
    if verdict is hysteresis.Next.RESUME:
        return _resume(service, drain, why, now)
    if verdict is hysteresis.Next.ESCALATE and not drain.why_state:
        service.store.update_drain(drain.drain_id, why_state=why)
        return f"{drain.node} {why}"
    return ""


def _superseded(service: context.Context, drain: records.Drain, now: datetime) -> str:
    service.store.update_drain(drain.drain_id, ended_at=now, why_state="a newer drain of ours took over")
    return ""


def _patient(
    service: context.Context, drain: records.Drain, node: view.Node, past: Sequence[records.Drain]
) -> hysteresis.Patient:
    events = service.store.events_by_id(drain.event_ids)
    boots = service.store.events(nodes=[drain.node], since=drain.at, kinds=["node_boot"])
    booted = [e.at for e in boots] + [at for at in (node.boot_at,) if at is not None]
    return hysteresis.Patient(
        drain=drain,
        kinds=frozenset(e.kind for e in events),
        green=service.green.get(drain.node),
        booted_at=max(booted, default=None),
        past=tuple(past),
    )


def _resume(service: context.Context, drain: records.Drain, why: str, now: datetime) -> str:
    # First the row: a resume that nobody recorded would look like a person's.
    service.store.update_drain(drain.drain_id, why_state=_BEGUN)
    try:
        outcome = service.hands.resume(drain.node)
    except errors.SlurmUnavailable:
        service.store.update_drain(drain.drain_id, why_state=_before(drain))
        raise
    if outcome.state != "done":
        service.store.update_drain(drain.drain_id, why_state=_before(drain))
        return f"{drain.node} not resumed: {outcome.why}"
    service.store.update_drain(drain.drain_id, state="resumed", ended_at=now, why_state=why)
    return f"{drain.node} resumed: {why}"


def _before(drain: records.Drain) -> str:
    return "" if drain.why_state == _BEGUN else drain.why_state


TASK = context.Task(
    name="resume",
    meaning="resumes nodes we drained once they have been healthy for long enough",
    run=run,
    every_s=lambda _: 5.0,
)
