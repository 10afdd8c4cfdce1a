"""Gathering the picture that the policy decides from; Slurm is asked only when there is something to decide."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.attribution.passes import node_clocks
from probing_cluster.attribution.places import layout, scan
from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import confirm, overdue, shared_part, view
from probing_cluster.core import errors, records, settings, vocabulary

REFUSED = "prolog_refused"
"""The code of the event by which an agent says that it refused a job."""
_MEMORY = overdue.LONGEST
"""How far back our own decisions are looked at, if the windows of the budgets are shorter; drains that stand are, however old."""
_RETRY_AFTER = timedelta(minutes=1)
"""While an outage lasts, Slurm is asked about the faults of that time as often as this."""
_OPEN = frozenset({vocabulary.DECIDED_ANEW, vocabulary.GPUS_UNKNOWN})
"""Why acts were left undone that may be done in a later pass."""
_SETTLES = timedelta(seconds=30)
"""For so long after a drain its node's jobs are looked at in every pass: one may have begun just before it."""


def waiting(service: context.Context, *, everywhere: bool = True) -> view.View:
    """What the database alone knows: fresh events, heartbeats and our decisions.

    Without `everywhere` only the heartbeats of nodes with a fresh event are read: enough to act on
    events, cheap enough for every second.
    """
    now = service.clock.now()
    policy, store, cluster = service.config.policy, service.store, service.config.cluster.name
    outage_s = _outage_s(service, now)
    since = now - timedelta(seconds=policy.fresh_s + outage_s)
    events = store.events(since=since, min_severity=records.Severity.LOW, cluster=cluster)
    check_events = store.events(since=since, kinds=["check"], cluster=cluster)
    refusals = tuple(e for e in check_events if e.code == REFUSED and e.source == "agent")
    if not everywhere and not events and not refusals:
        return view.View(now=now)
    windows_s = max(policy.budget_window_s, policy.restart_window_s)
    window = now - max(_MEMORY, timedelta(seconds=windows_s))
    clocks = node_clocks.read(store, cluster)
    beats = store.heartbeats(nodes=None if everywhere else {e.node for e in events}, cluster=cluster)
    return view.View(
        now=now,
        outage_s=outage_s,
        events=tuple(events),
        refusals=refusals,
        heartbeats={b.node: clocks.heartbeat(b) for b in beats if b.cluster == cluster},
        silent_s=store.heartbeat_ages_s(cluster=cluster),
        drains=_drains(service, window),
        under_test=store.nodes_under_test(cluster),
    )


def _drains(service: context.Context, since: datetime) -> tuple[records.Drain, ...]:
    """Our decisions since then, and every drain that stands."""
    store, cluster = service.store, service.cluster
    found = (*store.drains(open_only=True, cluster=cluster), *store.drains(since=since, cluster=cluster))
    return tuple({d.drain_id: d for d in found}.values())


def _outage_s(service: context.Context, now: datetime) -> float:
    """How long the latest outage of Slurm lasted; 0 once every fault of that time has had its decision.

    0 also while it lasts and Slurm was asked in the last minute: nothing can be decided then, and a pass a second would
    read all that was reported since it began. Once a minute the faults of that time are a reason to ask again.
    """
    outages = service.journal.slurm_outages()
    lasting = [o for o in outages if o.until is None]
    if lasting:
        retried = any(now - o.last_question_at < _RETRY_AFTER for o in lasting)
        return 0.0 if retried else (now - min(o.since for o in lasting)).total_seconds()
    fresh = timedelta(seconds=service.config.policy.fresh_s)
    recent = [(o.since, o.until) for o in outages if o.until is not None and now - o.until <= fresh]
    if not recent:
        return 0.0
    return (max(until for _, until in recent) - min(since for since, _ in recent)).total_seconds()


def asks_for_more(fleet_view: view.View, policy: settings.PolicySettings, *, again: bool) -> bool:
    """Whether anything in the view could lead to an action, so that Slurm has to be asked.

    With `again` also what a drain has answered: nothing new follows from it unless Slurm has changed meanwhile.
    """
    acting = (e for e in fleet_view.events if not confirm.why_not(e, fleet_view, policy))
    if any(again or not _is_settled(e, fleet_view.drains_of(e.node), fleet_view.now) for e in acting):
        return True
    answered = {i for d in fleet_view.drains for i in d.event_ids}
    if any(e.event_id not in answered for e in fleet_view.refusals):
        return True
    if policy.observe_only:
        return False  # no node is permitted to refuse jobs
    return any(
        again or not _is_answered(fault, fleet_view.drains_of(beat.node))
        for beat in fleet_view.heartbeats.values()
        if confirm.is_current(beat, fleet_view.silent_s.get(beat.node))
        for fault in confirm.high_faults(beat, policy).values()
        if not confirm.is_accepted(beat.node, fault, fleet_view)
    )


def _is_settled(event: records.HealthEvent, drains: Iterable[records.Drain], now: datetime) -> bool:
    """Whether the event's drain was carried out, or simulated, some time ago, and no act for it is still to be done.

    After a drain that was lifted its event acts again where the fault has begun anew.
    """
    own = [d for d in drains if event.event_id in d.event_ids]
    done = any(
        d.action == "drain" and d.state in {"done", "simulated"} and now - d.at > _SETTLES for d in own
    )
    return done and not any(d.state == "failed" or d.why_state in _OPEN for d in own)


def _is_answered(fault: Mapping[str, Any], drains: Iterable[records.Drain]) -> bool:
    """Whether a drain of its node was decided for this fault: while it stands, or was lifted by a person, no refusal is permitted."""
    states = {"done", "simulated", "resumed", "skipped"}
    own = (d for d in drains if d.action == "drain" and d.state in states)
    return any(str(i) == fault.get("event_id") for d in own for i in d.event_ids)


def with_overdue(fleet_view: view.View, service: context.Context) -> view.View:
    """The same picture with the events of faults about which nobody could decide in time; none where accounting does not answer."""
    found = overdue.find(fleet_view, service.config.policy)
    if not found:
        return fleet_view
    first = min(began for _, began in found.values())
    try:
        outages = tuple(service.slurm.outages(first - overdue.LONGEST, fleet_view.now))
    except errors.SlurmUnavailable:
        return fleet_view
    wanted = {i for i, (node, began) in found.items() if not overdue.brought_back(node, began, outages)}
    known = {e.event_id for e in fleet_view.events}
    events = tuple(e for e in service.store.events_by_id(wanted - known) if e.cluster == service.cluster)
    return dataclasses.replace(fleet_view, events=(*fleet_view.events, *events), overdue=frozenset(wanted))


def with_slurm(fleet_view: view.View, service: context.Context) -> view.View:
    """The same picture with Slurm's nodes and running jobs, and the GPUs those jobs hold."""
    nodes = {n.name: n for n in service.slurm.nodes()}
    jobs = tuple(service.slurm.jobs())
    starts = [j.start_at for j in jobs if j.start_at]
    since = min(starts) - timedelta(minutes=5) if starts else fleet_view.now
    running = {j.job_id for j in jobs}
    allocations = tuple(service.store.allocations(since=since, job_ids=running)) if running else ()
    shared, members = _shared_place(fleet_view, service)
    return dataclasses.replace(
        fleet_view, nodes=nodes, jobs=jobs, allocations=allocations, shared=shared, shared_nodes=members
    )


def of_budget(service: context.Context, nodes: Mapping[str, view.Node]) -> view.View:
    """What the drain budget counts, for those who take nodes without a fault that the policy looks at."""
    now, store = service.clock.now(), service.store
    since = now - timedelta(seconds=service.config.policy.budget_window_s)
    found = view.View(
        now=now,
        nodes=nodes,
        heartbeats={b.node: b for b in store.heartbeats(cluster=service.cluster)},
        drains=_drains(service, since),
        under_test=store.nodes_under_test(service.cluster),
    )
    shared, members = _shared_place(found, service)
    return dataclasses.replace(found, shared=shared, shared_nodes=members)


def _shared_place(
    fleet_view: view.View, service: context.Context
) -> tuple[scan.SharedPlace | None, frozenset[str]]:
    """The place that explains the present faults of shared parts, and its nodes."""
    failed = {
        b.node
        for b in fleet_view.heartbeats.values()
        if any(map(shared_part.is_of, b.faults, b.faults.values()))
    }
    if len(failed) < scan.LEAST:
        return None, frozenset()
    cluster = service.config.cluster.name
    where = layout.Places(service.store.places(cluster)).at(cluster, fleet_view.now)
    return shared_part.suspect(failed, where)


def with_nodes(fleet_view: view.View, nodes: Mapping[str, view.Node]) -> view.View:
    """The same picture with Slurm's nodes as they were read."""
    return dataclasses.replace(fleet_view, nodes=nodes)
