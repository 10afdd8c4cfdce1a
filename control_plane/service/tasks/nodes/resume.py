"""Nodes we drained, back into service when the resume policy allows it; adopted, escalated or left as they are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import resume_policy, view
from probing_cluster.control_plane.service import reconcile, turns
from probing_cluster.core import errors, records, vocabulary

_BEGUN = "resume begun; its outcome was not recorded"


class GreenTimes(dict[str, resume_policy.GreenTime]):
    """Nodes whose agents show no fault, and since when."""


def run(service: context.Context) -> str:
    """One look at every node of ours that is drained; what was done."""
    follow_beats(service)
    open_drains = [
        d for d in service.store.drains(open_only=True, cluster=service.cluster) if d.action == "drain"
    ]
    # Of a node under test the drain is lifted and stands all the same: the repair workflow ends it.
    if service.config.repair.test_before_return:
        repaired = frozenset(
            incident.node for incident in service.store.incidents(open_only=True, cluster=service.cluster)
        )
    else:
        repaired = frozenset(service.store.nodes_under_test(service.config.cluster.name))
    open_drains = [d for d in open_drains if d.node not in repaired]
    if not open_drains:
        return ""
    with turns.take(service, "resume") as mine:
        if not mine:
            return ""
        nodes = {n.name: n for n in service.slurm.nodes()}
        history = _History.read(service, open_drains)
        # A Slurm that lists no node at all says nothing about ours.
        outcomes = [_one(service, drain, nodes.get(drain.node), history) for drain in open_drains if nodes]
    return ", ".join(t for t in outcomes if t)


def follow_beats(service: context.Context) -> None:
    """Keep every node's green time up to date."""
    beats = {b.node: b for b in service.store.heartbeats(cluster=service.cluster)}
    ages, now = service.store.heartbeat_ages_s(cluster=service.cluster), service.clock.now()
    green_times = service.memory(GreenTimes)
    for node, beat in beats.items():
        green = resume_policy.follow(green_times.get(node), beat, ages.get(node), now)
        if green is None:
            green_times.pop(node, None)
        else:
            green_times[node] = green


@dataclass(frozen=True, kw_only=True)
class _History:
    """What was said and done about the drained nodes, read for all of them at once."""

    drains: Sequence[records.Drain]
    events: Mapping[uuid.UUID, records.HealthEvent]
    boots: Sequence[records.HealthEvent]

    @classmethod
    def read(cls, service: context.Context, open_drains: Sequence[records.Drain]) -> _History:
        """Reads what resuming needs, in four queries however many nodes are drained."""
        store, first = service.store, min(d.at for d in open_drains)
        since = first - timedelta(days=service.config.policy.escalate_days)
        nodes = {d.node for d in open_drains}
        ids = {event_id for d in open_drains for event_id in d.event_ids}
        return cls(
            drains=[d for d in store.drains(since=since, cluster=service.cluster) if d.node in nodes],
            events={e.event_id: e for e in store.events_by_id(ids)},
            boots=store.events(
                nodes=sorted(nodes), since=first, kinds=["node_boot"], cluster=service.cluster
            ),
        )


def _one(service: context.Context, drain: records.Drain, node: view.Node | None, history: _History) -> str:
    now = service.clock.now()
    over = view.drain_over(node)
    if over and node is not None and not node.hands_off and drain.why_state == _BEGUN:
        over = reconcile.AFTER  # our own resume, whose end was not recorded
    if over:
        service.store.update_drain(drain.drain_id, ended_at=now, state="resumed", why_state=over)
        return f"{drain.node} {over}"
    if node is None or not node.ours:
        return ""  # Slurm put a reason of its own on our drain: it stands, and a person will lift it
    if drain.owner != "probing" or service.config.policy.observe_only:
        return ""  # a person drained it through probing-ctl: theirs to lift
    since = drain.at - timedelta(days=service.config.policy.escalate_days)
    past = [d for d in history.drains if d.node == drain.node and d.at >= since]
    if resume_policy.latest(past, drain.node) != drain:
        return _superseded(service, drain, now)
    if (
        service.config.repair.test_before_return
        and service.config.policy.auto_resume
        and not _is_lemon(drain)
    ):
        return ""  # it returns by its tests (tasks/repair.py)
    verdict, why = resume_policy.judge(
        _patient(service, drain, node, past, history), service.config.policy, now
    )
    if verdict is resume_policy.ResumeStep.RESUME:
        return _resume(service, drain, why, now)
    if verdict is resume_policy.ResumeStep.ESCALATE and not drain.why_state:
        service.store.update_drain(drain.drain_id, why_state=why)
        return f"{drain.node} {why}"
    return ""


def _is_lemon(drain: records.Drain) -> bool:
    return drain.reason.startswith(vocabulary.LEMON_PREFIX)


def _superseded(service: context.Context, drain: records.Drain, now: datetime) -> str:
    service.store.update_drain(drain.drain_id, ended_at=now, why_state="a newer drain of ours took over")
    return ""


def _patient(
    service: context.Context,
    drain: records.Drain,
    node: view.Node,
    past: Sequence[records.Drain],
    history: _History,
) -> resume_policy.DrainedNode:
    events = [history.events[i] for i in drain.event_ids if i in history.events]
    boots = [e for e in history.boots if e.node == drain.node and e.at >= drain.at]
    booted = [e.at for e in boots] + [at for at in (node.boot_at,) if at is not None]
    return resume_policy.DrainedNode(
        drain=drain,
        kinds=frozenset(e.kind for e in events),
        green=service.memory(GreenTimes).get(drain.node),
        booted_at=max(booted, default=None),
        past=tuple(past),
    )


def _resume(service: context.Context, drain: records.Drain, why: str, now: datetime) -> str:
    # First the row: a resume that nobody recorded would look like a person's.
    service.store.update_drain(drain.drain_id, why_state=_BEGUN)
    try:
        outcome = service.slurm.resume(drain.node)
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
