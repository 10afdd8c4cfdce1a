"""Nodes we drained, back into service when hysteresis says so; adopted, escalated or left as they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context, hysteresis, turn, view
from probing_cluster.core import records


def run(service: context.Context) -> str:
    """One look at every node of ours that is drained; what was done."""
    follow_beats(service)
    standing = [d for d in service.store.drains(open_only=True) if d.action == "drain"]
    if not standing:
        return ""
    with turn.taken(service.store, "resume") as mine:
        if not mine:
            return ""
        nodes = {n.name: n for n in service.hands.nodes()}
        # A Slurm that lists no node at all says nothing about ours.
        told = [_one(service, drain, nodes.get(drain.node)) for drain in standing if nodes]
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
    over = view.drain_over(node)
    if over:
        service.store.update_drain(drain.drain_id, ended_at=now, state="resumed", why_state=over)
        return f"{drain.node} {over}"
    if node is None or not node.ours:
        return ""  # Slurm put a reason of its own on our drain: it stands, and a person will lift it
    if drain.owner != "probing" or service.config.policy.observe_only:
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
    outcome = service.hands.resume(drain.node)
    if outcome.state != "done":
        return f"{drain.node} not resumed: {outcome.why}"
    service.store.update_drain(drain.drain_id, state="resumed", ended_at=now, why_state=why)
    return f"{drain.node} resumed: {why}"


TASK = context.Task(
    name="resume",
    meaning="resumes nodes we drained once they have been healthy for long enough",
    run=run,
    every_s=lambda _: 5.0,
)
