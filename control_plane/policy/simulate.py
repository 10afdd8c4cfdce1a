"""What the policy would have done with the events of the past: `probing-ctl policy simulate`.

What history does not hold is assumed in the direction of acting: every fault confirmed by its
agent, every job requeueable, a node back in service when its next job starts, and a fault of other nodes over
when its event is no longer fresh.
"""

from __future__ import annotations

import dataclasses
import heapq
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from probing_cluster.attribution.places import layout, scan
from probing_cluster.control_plane.policy import confirm, policy, shared_part, view
from probing_cluster.core import clock, records, settings, vocabulary

BAD_ENDS = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "REQUEUED"})


@records.record
class Replay:
    """The outcome of one simulation."""

    decisions: tuple[tuple[datetime, policy.Decision], ...] = records.doc("in order, with when")
    n_events: int = records.doc("events that could have acted")
    n_failed_anyway: int = records.doc("requeued attempts that in truth ended badly")
    n_completed_anyway: int = records.doc("requeued attempts that in truth completed: the harm")
    gpu_h_cut: float = records.doc("GPU-hours those completed attempts had used when cut")


def replay(
    events: Iterable[records.HealthEvent],
    attempts: Sequence[records.JobAttempt],
    nodes: dict[str, view.Node],
    config: settings.PolicySettings,
    places: layout.Places | None = None,
) -> Replay:
    """Every event judged in its turn, with what other nodes showed then, and the decisions so far counted against the budget.

    `places`: what nodes share.
    """
    # No permissions to refuse jobs: history does not say whether a Prolog would have used them.
    deciding = dataclasses.replace(config, observe_only=True)
    by_node = _by_node(attempts)
    made: list[tuple[datetime, policy.Decision]] = []
    drains: list[records.Drain] = []
    gone: set[tuple[int, datetime | None]] = set()  # attempts requeued so far: in truth they ran on
    n_events = 0
    known = [_as_live(e) for e in events]
    recovered = _recoveries(known)
    others = _Others(known, nodes, recovered, config)
    for at, event in sorted(((_acts_at(e, config), e) for e in known), key=lambda x: (x[0], x[1].event_id)):
        if event.source not in vocabulary.ACTING_SOURCES or event.severity is records.Severity.INFO:
            continue
        n_events += 1
        if any(event.at <= over <= at for over in recovered.get(_part(event), ())):
            continue
        running = [
            a for a in by_node.get(event.node, ()) if _runs_at(a, at) and (a.job_id, a.start_at) not in gone
        ]
        fleet_view = others.beside(_picture(event, at, running, nodes, drains, by_node), places)
        for decision in policy.decide(fleet_view, deciding):
            made.append((at, decision))
            drains.append(_row(decision, event, at))
            if decision.action == "requeue" and not decision.held and decision.job:
                gone.add((decision.job.job_id, decision.job.start_at))
    return _with_truth(made, n_events, attempts)


class _Others:
    """What the agents of all nodes showed at an instant that only moves on."""

    def __init__(
        self,
        events: Iterable[records.HealthEvent],
        nodes: Iterable[str],
        recovered: Mapping[_Part, Sequence[datetime]],
        config: settings.PolicySettings,
    ) -> None:
        acting = [e for e in events if e.severity is not records.Severity.INFO]
        self._coming = deque(sorted(acting, key=lambda e: (e.at, e.event_id)))
        self._going: list[tuple[datetime, uuid.UUID, records.HealthEvent]] = []
        self._recovered = recovered
        self._fresh = timedelta(seconds=config.fresh_s + config.hold_s)
        self._faults: dict[str, dict[str, records.HealthEvent]] = {}
        well = records.AgentHeartbeat(cluster="", node="", at=datetime.min.replace(tzinfo=UTC))
        self._beats = dict.fromkeys(nodes, well)
        self._suspect: tuple[set[str], scan.SharedPlace | None, frozenset[str]] = (set(), None, frozenset())

    def beside(self, own: view.View, places: layout.Places | None) -> view.View:
        """The picture of one node's event with the other nodes in it, and the place that is suspected then."""
        ((name, beat),) = own.heartbeats.items()
        self._move(beat.at)
        beats = self._beats | {name: beat}
        if name in self._beats:
            beats[name] = dataclasses.replace(beat, faults={**self._beats[name].faults, **beat.faults})
        self._suspected(beat, places)
        _, place, members = self._suspect
        silent_s = dict.fromkeys(beats, 0.0)
        return dataclasses.replace(
            own, heartbeats=beats, silent_s=silent_s, shared=place, shared_nodes=members
        )

    def _move(self, at: datetime) -> None:
        changed: set[str] = set()
        while self._coming and self._coming[0].at <= at:
            event = self._coming.popleft()
            until = min((t for t in self._recovered.get(_part(event), ()) if t >= event.at), default=None)
            heapq.heappush(self._going, (until or event.at + self._fresh, event.event_id, event))
            self._faults.setdefault(event.node, {})[_key(event)] = event
            changed.add(event.node)
        while self._going and self._going[0][0] < at:
            event = heapq.heappop(self._going)[2]
            if self._faults[event.node].get(_key(event)) is event:
                del self._faults[event.node][_key(event)]
                changed.add(event.node)
        for node in changed:
            faults = {key: _fault(e, at) for key, e in self._faults[node].items()}
            self._beats[node] = records.AgentHeartbeat(cluster="", node=node, at=at, faults=faults)

    def _suspected(self, beat: records.AgentHeartbeat, places: layout.Places | None) -> None:
        if places is None:
            return
        failed = {
            node
            for node, faults in self._faults.items()
            if any(shared_part.cause_of(e.kind, e.code) for e in faults.values())
        }
        if failed != self._suspect[0]:
            self._suspect = (failed, *shared_part.suspect(failed, places.at(beat.cluster, beat.at)))


def nodes_of(attempts: Iterable[records.JobAttempt]) -> dict[str, view.Node]:
    """Nodes and their partitions as the jobs used them, where Slurm itself cannot be asked."""
    partitions: dict[str, set[str]] = {}
    for attempt in attempts:
        for name in attempt.nodes:
            partitions.setdefault(name, set()).add(attempt.partition or "all")
    return {name: view.Node(name=name, partitions=tuple(sorted(p))) for name, p in partitions.items()}


def in_service(nodes: Iterable[view.Node]) -> list[view.Node]:
    """Slurm's nodes as if nobody had drained any: what stands today says nothing about then."""
    return [dataclasses.replace(n, states=frozenset(), reason="", reason_at=None) for n in nodes]


def _by_node(attempts: Iterable[records.JobAttempt]) -> dict[str, list[records.JobAttempt]]:
    found: dict[str, list[records.JobAttempt]] = {}
    for attempt in attempts:
        for node in attempt.nodes:
            found.setdefault(node, []).append(attempt)
    return found


def _as_live(event: records.HealthEvent) -> records.HealthEvent:
    """An imported event as its source would have reported it live."""
    return dataclasses.replace(event, source="kernel") if event.source == "import" else event


def _acts_at(event: records.HealthEvent, config: settings.PolicySettings) -> datetime:
    """The instant at which the fault has stood for long enough to act."""
    held_s = config.hold_s if confirm.is_held(event.kind, event.code, config) else 0.0
    return event.at + timedelta(seconds=held_s)


_Part = tuple[str, str, str]


def _key(event: records.HealthEvent) -> str:
    return f"{event.kind}:{event.device or ''}"


def _fault(event: records.HealthEvent, at: datetime) -> dict[str, str | None]:
    return {
        "severity": event.severity.value,
        "event_id": str(event.event_id),
        "code": event.code,
        "since": clock.iso_z(event.at),
        "confirmed_at": clock.iso_z(at),
    }


def _part(event: records.HealthEvent) -> _Part:
    return event.node, event.kind, event.device or event.pci_bus_id or ""


def _recoveries(events: Iterable[records.HealthEvent]) -> dict[tuple[str, str, str], list[datetime]]:
    """The times at which each part was reported well again."""
    found: dict[tuple[str, str, str], list[datetime]] = {}
    for event in events:
        if event.detail.get("recovered"):
            found.setdefault(_part(event), []).append(event.at)
    return found


def _runs_at(attempt: records.JobAttempt, at: datetime) -> bool:
    return (
        attempt.start_at is not None
        and attempt.start_at <= at
        and (attempt.end_at is None or at <= attempt.end_at)
    )


def _picture(
    event: records.HealthEvent,
    at: datetime,
    running: Sequence[records.JobAttempt],
    nodes: dict[str, view.Node],
    drains: Sequence[records.Drain],
    by_node: dict[str, list[records.JobAttempt]],
) -> view.View:
    beat = records.AgentHeartbeat(
        cluster=event.cluster,
        node=event.node,
        at=max(event.observed_at, at),
        faults={_key(event): _fault(event, at)},
    )
    drained = {d.node: d for d in drains if d.action == "drain" and d.state == "done"}
    out = {n: d for n, d in drained.items() if not _back(d, by_node.get(n, ()), at)}
    states = {
        name: dataclasses.replace(
            node, states=frozenset({"DRAIN"}), reason=out[name].reason, reason_at=out[name].at
        )
        if name in out
        else node
        for name, node in nodes.items()
    }
    states.setdefault(event.node, view.Node(name=event.node, partitions=("all",)))
    return view.View(
        now=max(event.last_at or event.at, at),
        events=(event,),
        heartbeats={event.node: beat},
        silent_s={event.node: 0.0},
        nodes=states,
        jobs=tuple(_job(a) for a in running),
        allocations=tuple(x for a in running for x in _allocations(a)),
        drains=tuple(drains),
    )


def _back(drain: records.Drain, attempts: Iterable[records.JobAttempt], at: datetime) -> bool:
    return any(a.start_at and drain.at < a.start_at <= at for a in attempts)


def _job(attempt: records.JobAttempt) -> view.ActiveJob:
    return view.ActiveJob(
        job_id=attempt.job_id,
        start_at=attempt.start_at,
        restart_count=attempt.attempt - 1,
        nodes=attempt.nodes,
        n_gpus=attempt.n_gpus,
    )


def _allocations(attempt: records.JobAttempt) -> list[records.JobAllocation]:
    assert attempt.start_at is not None
    return [
        records.JobAllocation(
            cluster=attempt.cluster, node=node, job_id=attempt.job_id, restart_count=attempt.attempt - 1,
            at=attempt.start_at, gpu_uuids=tuple(uuids),
        )
        for node, uuids in (attempt.gpus or {}).items()
    ]  # fmt: skip


def _row(decision: policy.Decision, event: records.HealthEvent, at: datetime) -> records.Drain:
    return records.Drain(
        drain_id=uuid.uuid5(event.event_id, f"{decision.action}{decision.job and decision.job.job_id}"),
        cluster=event.cluster,
        node=decision.node,
        at=at,
        action=decision.action,
        reason=decision.reason,
        owner="probing",
        state=decision.held or "done",
        job_id=decision.job.job_id if decision.job else None,
        event_ids=decision.event_ids,
    )


def _with_truth(
    made: list[tuple[datetime, policy.Decision]], n_events: int, attempts: Sequence[records.JobAttempt]
) -> Replay:
    truth = {(a.job_id, a.start_at): a for a in attempts}
    cut = [
        (at, truth[d.job.job_id, d.job.start_at])
        for at, d in made
        if d.action == "requeue" and not d.held and d.job
    ]
    completed = [(at, a) for at, a in cut if a.state == "COMPLETED"]
    used_s = [
        ((at - a.start_at) / timedelta(seconds=1)) * (a.n_gpus or 0) for at, a in completed if a.start_at
    ]
    return Replay(
        decisions=tuple(made),
        n_events=n_events,
        n_failed_anyway=sum(a.state in BAD_ENDS for _, a in cut),
        n_completed_anyway=len(completed),
        gpu_h_cut=sum(used_s) / 3600,
    )
