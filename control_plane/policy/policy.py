"""What to do about nodes, decided from one picture of the cluster and nothing else.

High severity: drain, then requeue the jobs that hold the broken part. Low: drain only; running
jobs finish. Every rule that can hold a decision back says so in words, and those words are stored.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from probing_cluster.control_plane.policy import budget, confirm, restart, shared_part, victims, view
from probing_cluster.core import records, sanitize, settings, vocabulary

_REASON_CHARS = 160
_PROLOG_LAG = timedelta(minutes=3)
"""A refusal and Slurm's drain for it lie no further apart than this."""
_RETRY = timedelta(seconds=30)
"""A command that failed is not repeated sooner."""

_NOT_REGISTERED = frozenset({"UNKNOWN", "NOT_RESPONDING"})
"""The states of a node from slurmctld's start until its slurmd registers."""


@records.record
class Decision:
    """One thing to do, or not to do and why."""

    node: str = records.doc("node concerned")
    action: str = records.doc("drain, requeue, refuse")
    reason: str = records.doc("as it will stand in Slurm")
    severity: records.Severity = records.doc("of the fault behind it")
    event_ids: tuple[uuid.UUID, ...] = records.doc("the evidence")
    events: tuple[records.HealthEvent, ...] = records.doc(
        "of a requeue: the faults that must still stand when it is done", default=()
    )
    held: str = records.doc(
        "denied or skipped when it must not be done, empty when it is to be done", default=""
    )
    why: str = records.doc("why it is held back", default="")
    job: view.ActiveJob | None = records.doc("the job to requeue, as it was when decided", default=None)
    adopt: bool = records.doc("true when Slurm already drained the node for our refusal", default=False)
    reservation: str = records.doc(
        "of a reference node that is drained: our reservation, which holds it for the test", default=""
    )


def decide(fleet_view: view.View, policy: settings.PolicySettings) -> tuple[Decision, ...]:
    """What to do now, drains before their requeues, gravest and oldest fault first."""
    ledger = budget.Ledger(fleet_view, policy)
    suspicions = shared_part.Suspicions(fleet_view, policy)
    acting = [e for e in fleet_view.events if not confirm.why_not(e, fleet_view, policy)]
    made: list[Decision] = []
    for node, events in _by_node(acting):
        made += _about(node, events, fleet_view, policy, ledger, suspicions)
    # A node about to be drained takes no job anyway.
    leaving = {d.node for d in made if d.action == "drain" and not d.held}
    made += [d for d in _refusals(fleet_view, policy, ledger, suspicions) if d.node not in leaving]
    made += _adoptions(fleet_view)
    return tuple(_once(made, fleet_view))


def reason_for(events: Sequence[records.HealthEvent]) -> str:
    """`probing: xid 79 gpu3`, with how many more faults there are."""
    first = events[0]
    return _reason(first.kind, first.code, first.device or first.pci_bus_id, len(events) - 1)


def _reason_of_faults(faults: Mapping[str, Mapping[str, Any]]) -> str:
    name, fault = min(faults.items(), key=lambda item: (str(item[1].get("since")), item[0]))
    kind, _, device = name.partition(":")
    return _reason(kind, fault.get("code"), device, len(faults) - 1)


def _reason(kind: str, code: str | None, device: str | None, n_more: int) -> str:
    more = f" (+{n_more} more)" if n_more else ""
    # A check of the whole node bears its own name in the part's place.
    part = device if device != code else None
    words = (vocabulary.OWN_PREFIX.strip(), kind, code if code != kind else None, part)
    return sanitize.clean(" ".join(w for w in words if w), _REASON_CHARS) + more


def _by_node(events: Iterable[records.HealthEvent]) -> Iterator[tuple[str, list[records.HealthEvent]]]:
    ordered = sorted(events, key=lambda e: (e.severity is not records.Severity.HIGH, e.at, e.event_id))
    nodes: dict[str, list[records.HealthEvent]] = {}
    for event in ordered:
        nodes.setdefault(event.node, []).append(event)
    yield from nodes.items()


def _about(
    name: str,
    events: list[records.HealthEvent],
    fleet_view: view.View,
    policy: settings.PolicySettings,
    ledger: budget.Ledger,
    suspicions: shared_part.Suspicions,
) -> Iterator[Decision]:
    own, not_own = suspicions.own(name, events)
    shown = own or events
    base = Decision(
        node=name,
        action="drain",
        reason=reason_for(shown),
        severity=shown[0].severity,
        event_ids=tuple(e.event_id for e in shown),
    )
    node = fleet_view.nodes.get(name)
    if node is None:
        yield left_undone(base, "skipped", "Slurm knows no such node")
        return
    if "UNKNOWN" in node.states and node.states <= _NOT_REGISTERED:
        return  # slurmctld has just begun, and has not heard of the node yet: the next pass knows more
    if not own:
        if not node.ours:
            yield left_undone(base, "skipped", not_own)
        return
    reference = fleet_view.is_reference(name)
    if name in fleet_view.under_test and node.ours:
        return  # drained by us already, in a reservation of ours: the drain is on record, or will be once Slurm answers
    if name in fleet_view.under_test and not reference:
        yield left_undone(base, "skipped", view.UNDER_TEST)
        return
    if node.hands_off and not (reference and node.in_maintenance):
        yield left_undone(base, "skipped", node.hands_off)
        return
    if not node.ours:
        denied = ledger.refuses(name)
        if denied:
            yield left_undone(base, "denied", denied)
            return
        ledger.take(name)
        # A reference goes back into service when the test ends: it is drained before that.
        yield dataclasses.replace(base, reservation=fleet_view.under_test[name]) if reference else base
    if policy.requeue and not reference:
        high = [e for e in own if e.severity is records.Severity.HIGH]
        yield from _requeues(base, high, fleet_view, policy)


def _requeues(
    base: Decision,
    events: Sequence[records.HealthEvent],
    fleet_view: view.View,
    policy: settings.PolicySettings,
) -> Iterator[Decision]:
    for job in fleet_view.jobs:
        if base.node not in job.nodes:
            continue
        spared = {e.event_id: victims.hit(job, e, fleet_view) for e in events}
        guilty = [e for e in events if spared[e.event_id] is None]
        found = dataclasses.replace(
            base, action="requeue", job=job, event_ids=tuple(e.event_id for e in guilty or events)
        )
        if guilty:
            made = dataclasses.replace(found, reason=reason_for(guilty), events=tuple(guilty))
            spent = restart.spent(_times_requeued(job.job_id, fleet_view, policy), policy)
            yield left_undone(made, "denied", spent) if spent else made
        elif events:
            yield left_undone(found, "skipped", next(iter(spared.values())) or "")


def _times_requeued(job_id: int, fleet_view: view.View, policy: settings.PolicySettings) -> int:
    since = fleet_view.now - timedelta(seconds=policy.restart_window_s)
    return sum(d.at > since for d in fleet_view.brought_back.get(job_id, ()))


def _refusals(
    fleet_view: view.View,
    policy: settings.PolicySettings,
    ledger: budget.Ledger,
    suspicions: shared_part.Suspicions,
) -> Iterator[Decision]:
    """Permission for the Prolog to refuse jobs: for hard faults confirmed now on nodes still in service."""
    if policy.observe_only:
        return
    for name, beat in sorted(fleet_view.heartbeats.items()):
        faults = (
            confirm.high_faults(beat, policy)
            if confirm.is_current(beat, fleet_view.silent_s.get(name))
            else {}
        )
        faults = {
            k: f
            for k, f in faults.items()
            if not confirm.is_accepted(name, f, fleet_view) and not suspicions.of_fault(name, k, f)
        }
        node = fleet_view.nodes.get(name)
        if (
            not faults
            or node is None
            or name in fleet_view.under_test
            or node.hands_off
            or node.ours
            or _still_permitted(name, fleet_view, policy)
        ):
            continue
        ids = tuple(uuid.UUID(f["event_id"]) for f in faults.values() if f.get("event_id"))
        if _overruled(name, ids, fleet_view):
            continue
        made = Decision(
            node=name,
            action="refuse",
            reason=_reason_of_faults(faults),
            severity=records.Severity.HIGH,
            event_ids=ids,
        )
        denied = ledger.refuses(name)
        if not denied:
            ledger.take(name)
        yield left_undone(made, "denied", denied) if denied else made


def _adoptions(fleet_view: view.View) -> Iterator[Decision]:
    """Slurm's own drain for a Prolog that refused a job with our permission is ours: it gets our reason."""
    for refusal in fleet_view.refusals:
        node = fleet_view.nodes.get(refusal.node)
        if node is None or not node.prolog_failed:
            continue
        if node.reason_at is not None and abs(node.reason_at - refusal.at) > _PROLOG_LAG:
            continue
        name = str(refusal.detail.get("fault", ""))
        kind, _, device = name.partition(":")
        fault_id = _uuid(refusal.detail.get("event_id"))
        yield Decision(
            node=refusal.node,
            action="drain",
            reason=_reason(kind, _code_of(name, refusal, fleet_view), device, 0),
            severity=records.Severity.HIGH,
            event_ids=(*((fault_id,) if fault_id else ()), refusal.event_id),
            adopt=True,
        )


def _code_of(name: str, refusal: records.HealthEvent, fleet_view: view.View) -> str | None:
    """The code of the fault for which a job was refused, as its agent still has it or as it was reported."""
    beat, fault_id = fleet_view.heartbeats.get(refusal.node), refusal.detail.get("event_id")
    fault = beat.faults.get(name) if beat is not None else None
    if isinstance(fault, Mapping) and fault.get("code"):
        return str(fault["code"])
    return next((e.code for e in fleet_view.events if str(e.event_id) == fault_id), None)


def _uuid(text: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _still_permitted(node: str, fleet_view: view.View, policy: settings.PolicySettings) -> bool:
    renew = fleet_view.now - timedelta(seconds=policy.refusal_ttl_s / 2)
    return any(
        d.action == "refuse" and d.state == "done" and d.at > renew for d in fleet_view.drains_of(node)
    )


def _overruled(node: str, ids: Sequence[uuid.UUID], fleet_view: view.View) -> bool:
    """A person put the node back although we had drained it for this: we do not fight."""
    return any(
        d.action == "drain" and d.state in {"done", "resumed"} and set(d.event_ids) & set(ids)
        for d in fleet_view.drains_of(node)
    )


def left_undone(decision: Decision, state: str, why: str) -> Decision:
    """The decision as one that is not carried out: `state` is denied or skipped."""
    return dataclasses.replace(decision, held=state, why=why)


def _once(made: Iterable[Decision], fleet_view: view.View) -> Iterator[Decision]:
    """The decisions that are not stored yet; a decision that was held back is stored once, too."""
    requeued: set[int] = set()
    for decision in made:
        if decision.job is not None and not decision.held:
            if decision.job.job_id in requeued:
                continue
            requeued.add(decision.job.job_id)
        if not any(_same(decision, past, fleet_view) for past in fleet_view.drains_of(decision.node)):
            yield decision


def _same(decision: Decision, past: records.Drain, fleet_view: view.View) -> bool:
    """Whether `past`, an earlier decision about the same node, makes this one needless."""
    if past.action != decision.action:
        return False
    if past.job_id != (decision.job.job_id if decision.job else None):
        return False
    if decision.action != "refuse" and not set(past.event_ids) & set(decision.event_ids):
        return False
    if decision.held:
        return past.state == decision.held
    if past.state == "failed" or past.why_state == view.DECIDED_ANEW:
        return fleet_view.now - past.at < _RETRY
    return decision.action != "refuse" and past.state in {"done", "simulated"}
