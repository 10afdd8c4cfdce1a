"""What the policy looks at: one consistent picture of the cluster, read just before it decides."""

from __future__ import annotations

import functools
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from probing_cluster.attribution.places import scan
from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import node_events

BRINGS_BACK = frozenset({"requeue", "restart"})
"""Decisions about a job that ran, or after its end."""
UNDER_TEST = "it is being tested (probing-ctl repair show)"
"""Why a drain was left undone: the node is in a reservation of ours."""
DECIDED_ANEW = vocabulary.DECIDED_ANEW
BEGUN = vocabulary.BEGUN
OUTCOME_UNKNOWN = f"{BEGUN}: Slurm did not answer"
"""Of an act whose outcome is not known yet: it is settled once Slurm answers."""
TAKEN_OVER = "taken over by another"
"""Begins why a drain of ours stands no longer: the node is drained still, with another's reason."""
_NO_DECISION = frozenset({UNDER_TEST, DECIDED_ANEW})
_MAINTENANCE = frozenset({"MAINT", "MAINTENANCE"})
_OUT_ALREADY = re.compile(r"\bby another\b|^\S+ is [A-Z_+]+ \(")
"""`DRAIN by another (fan, bob)` of the policy, `n1 is DRAIN (fan, bob)` of the act itself."""


def is_begun(row: records.Drain) -> bool:
    """Whether an act was begun and has no outcome yet."""
    return row.state == "failed" and row.why_state.startswith(BEGUN)


@records.record
class Node:
    """A node as Slurm has it right now."""

    name: str = records.doc("node name")
    states: frozenset[str] = records.doc("base state and flags, upper case", default=frozenset())
    reason: str = records.doc("Slurm's reason, empty for none", default="")
    reason_at: datetime | None = records.doc("when that reason was set", default=None)
    reason_by: str = records.doc("whose account set it; empty when Slurm does not say", default="")
    partitions: tuple[str, ...] = records.doc("partitions it is in", default=())
    boot_at: datetime | None = records.doc("when it booted, by Slurm", default=None)
    n_gpus: int | None = records.doc("GPUs configured; null when unknown", default=None)
    address: str = records.doc("where it is reached, by Slurm", default="")
    reservation: str = records.doc("the reservation that it is in, by Slurm; empty for none", default="")

    @property
    def reason_or_reservation(self) -> str:
        """Why it is out, in Slurm's words: its reason, else the reservation for maintenance that it is in."""
        if self.reason or not self.reservation or not self.in_maintenance:
            return self.reason or "no reason given"
        return f"reservation {sanitize.clean(self.reservation, 80)}"

    @property
    def ours(self) -> bool:
        """True while it is drained with a reason of ours."""
        return bool(self.states & vocabulary.DRAINED_STATES) and self.reason.startswith(vocabulary.OWN_PREFIX)

    @property
    def gone(self) -> str:
        """`DOWN+NOT_RESPONDING`: in which states it is out without being drained; empty for none."""
        return node_events.gone(self.states)

    @property
    def in_maintenance(self) -> bool:
        """True while nothing but a reservation for maintenance keeps it out of service."""
        taken = self.states & vocabulary.UNTOUCHABLE_STATES
        return bool(taken) and taken <= _MAINTENANCE

    @property
    def prolog_failed(self) -> bool:
        """True while Slurm itself has drained it because a Prolog exited non-zero."""
        return "DRAIN" in self.states and self.reason.lower().startswith("prolog error")

    @property
    def hands_off(self) -> str:
        """Why nobody but its present owner may touch it; empty when we may."""
        taken = sorted(self.states & vocabulary.UNTOUCHABLE_STATES)
        if self.ours and not self.states & (vocabulary.UNTOUCHABLE_STATES - vocabulary.DRAINED_STATES):
            return ""
        if taken:
            return f"{'+'.join(taken)} by another ({self.reason_or_reservation})"
        if node_events.is_a_persons(self.reason):
            return f"it carries another's note ({self.reason})"
        return ""


def set_down_by(node: Node) -> str:
    """The account of the person who set the node DOWN with a reason of their own; empty when nobody did."""
    by_hand = "DOWN" in node.states and node_events.is_a_persons(node.reason)
    return sanitize.clean(node.reason_by, 40) if by_hand else ""


def drain_over(node: Node | None) -> str:
    """Why a drain of ours that was recorded stands no longer, as Slurm shows its node now (None: not at all); empty while it stands."""
    if node is None:
        return "Slurm knows the node no longer"
    if not node.states & vocabulary.DRAINED_STATES:
        return "lifted by another"
    if not node.ours and node_events.is_a_persons(node.reason):
        return f"{TAKEN_OVER}: {node.reason}"
    return ""


def left_in_service(drain: records.Drain) -> bool:
    """Whether a drain that was not carried out left its node in service, faulty: not where the node was out already, or Slurm did not answer."""
    if drain.state == "skipped":
        return drain.why_state not in _NO_DECISION and not _OUT_ALREADY.search(drain.why_state)
    return drain.state in {"denied", "failed"} and not drain.why_state.startswith(commands.AWAY)


def in_maintenance_then(drain: records.Drain) -> bool:
    """Whether a drain was left undone for nothing but a reservation for maintenance: whoever ends that has judged no fault."""
    states, by_another, _ = drain.why_state.partition(" by another (")
    return drain.state == "skipped" and bool(by_another) and set(states.split("+")) <= _MAINTENANCE


def was_out(drain: records.Drain) -> bool:
    """Whether a drain was left undone since the node was out of service already, by another."""
    return drain.state == "skipped" and " by another (" in drain.why_state


def left_open(drain: records.Drain) -> bool:
    """Whether a drain was left undone for what passes, so that its fault is decided about once more."""
    return in_maintenance_then(drain) or drain.why_state == DECIDED_ANEW


def unanswered(
    drains: Iterable[records.Drain], beats: Mapping[str, records.AgentHeartbeat]
) -> list[records.Drain]:
    """Drains that left a faulty node in service, oldest first, if what they were for still stands and nothing has drained the node since."""
    found: list[records.Drain] = []
    for drain in sorted((d for d in drains if d.action == "drain"), key=lambda d: d.at):
        if drain.state in {"done", "resumed"}:
            found = [d for d in found if d.node != drain.node]
        elif left_in_service(drain):
            found.append(drain)
    return [d for d in found if _stands(d, beats.get(d.node))]


def denials(
    drains: Iterable[records.Drain], beats: Mapping[str, records.AgentHeartbeat]
) -> dict[str, records.Drain]:
    """Node to the latest unanswered drain of it that was denied, as by the budget."""
    return {d.node: d for d in unanswered(drains, beats) if d.state == "denied"}


def permissions(
    drains: Iterable[records.Drain], beats: Mapping[str, records.AgentHeartbeat], since: datetime
) -> dict[str, records.Drain]:
    """Node to the latest permission, given after `since`, by which its Prolog may refuse jobs for a fault that still stands."""
    given = sorted((d for d in drains if d.action == "refuse" and d.state == "done"), key=lambda d: d.at)
    return {d.node: d for d in given if d.at > since and _stands(d, beats.get(d.node))}


def _stands(drain: records.Drain, beat: records.AgentHeartbeat | None) -> bool:
    faults = [f for f in beat.faults.values() if isinstance(f, Mapping)] if beat is not None else []
    named = {str(i) for f in faults for i in (f.get("event_id"), *_listed(f.get("event_ids")))}
    return any(str(event_id) in named for event_id in drain.event_ids)


def _listed(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


@records.record
class ActiveJob:
    """A running job as Slurm has it right now."""

    job_id: int = records.doc("raw job id")
    state: str = records.doc("base state", default="RUNNING")
    start_at: datetime | None = records.doc("start of this attempt")
    restart_count: int = records.doc("Slurm's restart count", default=0)
    nodes: tuple[str, ...] = records.doc("its nodes", default=())
    requeue: bool = records.doc("false with --no-requeue", default=True)
    batch: bool = records.doc("false for salloc and srun", default=True)
    required_nodes: tuple[str, ...] = records.doc("nodes it asks for by name (--nodelist)", default=())
    n_gpus: int | None = records.doc("its GPUs; null when Slurm does not say", default=None)


@records.record
class Outage:
    """One stretch of a node out of service, as Slurm's accounting has it."""

    node: str = records.doc("node name")
    start_at: datetime = records.doc("when it began")
    end_at: datetime | None = records.doc("when it ended; null while it lasts")
    reason: str = records.doc("Slurm's reason")


@records.record
class View:
    """Everything a decision rests on."""

    now: datetime = records.doc("the instant of the decision")
    events: tuple[records.HealthEvent, ...] = records.doc("recent events, any severity", default=())
    overdue: frozenset[uuid.UUID] = records.doc(
        "of the events those that act although they are old, since nobody could decide about them before",
        default=frozenset(),
    )
    refusals: tuple[records.HealthEvent, ...] = records.doc(
        "recent events in which an agent refused a job at its Prolog", default=()
    )
    outage_s: float = records.doc(
        "seconds that an outage of Slurm kept us from deciding, until an event of its end is no longer fresh: events may be older by as much",
        default=0.0,
    )
    heartbeats: Mapping[str, records.AgentHeartbeat] = records.doc(
        "latest beat by node, with the times of the server's clock", default_factory=dict
    )
    silent_s: Mapping[str, float] = records.doc(
        "seconds since each node's agent was heard, by the database's clock", default_factory=dict
    )
    nodes: Mapping[str, Node] = records.doc("Slurm's nodes by name", default_factory=dict)
    jobs: tuple[ActiveJob, ...] = records.doc("Slurm's running jobs", default=())
    allocations: tuple[records.JobAllocation, ...] = records.doc("GPUs of those jobs, by node", default=())
    shared: scan.SharedPlace | None = records.doc(
        "the place that nodes with faults of shared parts have in common, when chance does not explain it",
        default=None,
    )
    shared_nodes: frozenset[str] = records.doc("the nodes in that place", default=frozenset())
    under_test: Mapping[str, str] = records.doc(
        "nodes out of service in reservations of ours, by node the reservation: the repair workflow's, but for references that break",
        default_factory=dict,
    )
    drains: tuple[records.Drain, ...] = records.doc(
        "our decisions, at least of the budget's window", default=()
    )

    @functools.cached_property
    def _drains_of(self) -> Mapping[str, Sequence[records.Drain]]:
        found: dict[str, list[records.Drain]] = defaultdict(list)
        for drain in self.drains:
            found[drain.node].append(drain)
        return found

    @functools.cached_property
    def brought_back(self) -> Mapping[int, Sequence[records.Drain]]:
        """By job the requeues and restarts of it that were done."""
        found: dict[int, list[records.Drain]] = defaultdict(list)
        for drain in self.drains:
            if drain.action in BRINGS_BACK and drain.state == "done" and drain.job_id is not None:
                found[drain.job_id].append(drain)
        return found

    def is_reference(self, node: str) -> bool:
        """Whether it is in the test of another node, idle and not drained: one under test itself has a drain that stands."""
        drained = any(
            d.action == "drain" and d.state == "done" and d.ended_at is None for d in self.drains_of(node)
        )
        return node in self.under_test and not drained

    def drains_of(self, node: str) -> Sequence[records.Drain]:
        """Our decisions about one node, in the order of `drains`; in a storm thousands of events ask for those of their node."""
        return self._drains_of.get(node, ())
