"""A case made ready for the rules: events sorted, placed in time and tied (or not) to the attempt."""

from __future__ import annotations

import functools
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import findings, gpus, onset, signatures, taxonomy, window
from probing_cluster.core import hostlist, records, vocabulary

SLACK = timedelta(seconds=2)
"""Slurm's times are whole seconds and clocks differ a little."""

CRASHES = frozenset({4, 8, 11})
"""Illegal instruction, arithmetic, segmentation: a program does these to itself, whatever else went away."""

OWN_HANDLING = timedelta(seconds=30)
"""A drain or requeue this long after the end still belongs to the attempt."""


class When(StrEnum):
    """Where an event lies beside the attempt's life."""

    BEFORE_START = "before_start"
    RUNNING = "running"
    AFTER_END = "after_end"


@dataclass(frozen=True, kw_only=True)
class CaseSighting:
    """One node event inside the window, and how it concerns the attempt."""

    event: records.HealthEvent
    signature: signatures.Signature
    hold: gpus.Hold
    when: When
    at: datetime
    """The instant that counts, inside the window."""
    standing: bool
    """True for what began before the window: a condition that stood in it, or what we requeued the job for."""
    ours: bool
    """True when our own handling had begun: it may be a consequence of that."""
    taken: bool
    """True for what came after the end while another attempt, begun since, already ran there: it is that one's."""
    gpu: str | None
    """One name for the GPU, when the event means one."""
    device: str | None
    """The device as people call it: gpu3, mlx5_0, /scratch."""

    @property
    def last_at(self) -> datetime:
        """When it was last seen: equal lines are one event, and of those between nothing is known."""
        return max(self.at, self.event.last_at or self.at)

    @property
    def cause(self) -> str:
        """The cause it points at."""
        return self.signature.cause


@dataclass(frozen=True, kw_only=True)
class CaseFinding:
    """One finding of the job's own side."""

    event: records.HealthEvent
    signature: findings.FindingSignature


@dataclass(frozen=True, kw_only=True)
class EvidenceView:
    """What the rules look at."""

    case: cases.Case
    start_at: datetime
    end_at: datetime
    onset_at: datetime
    window: window.Window
    sightings: tuple[CaseSighting, ...]
    """Concerning the attempt, oldest first."""
    findings: tuple[CaseFinding, ...]
    handled: tuple[records.Drain, ...]
    """Our own drains of its nodes and requeues of it while it ran or just after, oldest first."""
    answered: frozenset[uuid.UUID] = frozenset()
    """Events for which we requeued it: they ended it, whether or not it felt them."""
    not_held: tuple[records.HealthEvent, ...] = ()
    """Root faults in the window on GPUs of its nodes that it did not hold, oldest first."""
    outside: tuple[records.HealthEvent, ...] = ()
    """Root faults on its nodes that lie outside the window, oldest first."""

    @property
    def attempt(self) -> records.JobAttempt:
        """The attempt judged."""
        return self.case.attempt

    @property
    def state(self) -> str:
        """Slurm's base state."""
        return self.case.attempt.state

    @property
    def acted_at(self) -> datetime | None:
        """When we first drained a node of the attempt or requeued it."""
        return self.handled[0].at if self.handled else None

    def of(self, *causes: str) -> tuple[CaseSighting, ...]:
        """The sightings that point at one of these causes, oldest first."""
        if len(causes) == 1:
            return self._by_cause.get(causes[0], ())
        return tuple(s for s in self.sightings if s.cause in causes)

    @functools.cached_property
    def lost_gpus(self) -> tuple[CaseSighting, ...]:
        """GPUs that were lost, and not back, when the attempt ended, oldest first; those it surely did not hold are left out."""
        found = [
            s for s in self.sightings if s.signature.role is signatures.Role.ROOT and s.at <= self.end_at
        ]
        return tuple(s for s in found if taxonomy.cause(s.cause).until_reset)

    @functools.cached_property
    def disturbances(self) -> tuple[CaseSighting, ...]:
        """Whatever was not as it should be on its nodes up to its end, oldest first, but for what a program does itself."""
        silent = (signatures.Role.USER, signatures.Role.CONSEQUENCE)
        return tuple(
            s
            for s in self.sightings
            if (
                s.event.severity is not records.Severity.INFO
                or s.signature.role in (signatures.Role.ROOT, signatures.Role.WEAK)
            )
            and s.signature.role not in silent
            and not s.signature.recovery
            and not s.ours
            and s.at <= self.end_at + SLACK
        )

    @functools.cached_property
    def left_standing(self) -> tuple[records.HealthEvent, ...]:
        """Faults of what it held that nothing says were over when it ended, oldest first."""
        over = [e for e in self.case.events if e.at <= self.end_at and signatures.of(e).recovery]
        left = [
            s.event
            for s in self.disturbances
            if s.signature.role is signatures.Role.ROOT and s.hold is not gpus.Hold.MAYBE
        ]
        return tuple(e for e in left if not any(_ends(later, e) for later in over))

    def consequences(self, node: str | None) -> tuple[CaseSighting, ...]:
        """What a fault on `node` left behind there: Xid 43, 45 and their like."""
        return tuple(
            s
            for s in self.sightings
            if s.signature.role is signatures.Role.CONSEQUENCE and s.event.node == node
        )

    @functools.cached_property
    def signal(self) -> int:
        """The signal that ended its script, as Slurm or a shell's exit code tells it; 0 for none."""
        code = self.attempt.exit_code or 0
        return self.attempt.exit_signal or (code - 128 if 128 < code < 160 else 0)

    @property
    def crashed(self) -> bool:
        """True when a process broke the rules of its own address space or arithmetic."""
        return self.signal in CRASHES

    @functools.cached_property
    def unwatched_nodes(self) -> tuple[str, ...]:
        """Nodes of the attempt nobody watched at its end: not seeing is not health."""
        # Such an event bears the time of the last beat: one after the end says that the end was watched.
        quiet = (s.event for s in self.sightings if s.event.kind == "agent_silent")
        silent = {event.node for event in quiet if event.at <= self.end_at}
        least = self.onset_at - timedelta(seconds=60)
        last = self.case.watched
        return tuple(
            n for n in self.attempt.nodes if n in silent or (at := last.get(n)) is None or at < least
        )

    @functools.cached_property
    def watched_nodes(self) -> tuple[str, ...]:
        """Nodes of the attempt whose agent was alive at its end."""
        unwatched = frozenset(self.unwatched_nodes)
        return tuple(n for n in self.attempt.nodes if n not in unwatched)

    @functools.cached_property
    def hung(self) -> bool:
        """True when the job's own side tells of ranks that waited in vain."""
        outstanding = [
            f.event for f in self.findings if f.event.kind == "dump" and f.event.detail.get("outstanding")
        ]
        return bool(outstanding) or any(f.signature.onset for f in self.findings)

    @functools.cached_property
    def hung_since(self) -> datetime | None:
        """Since when the job had not got on when it ended; None when it did, or when nothing says that it hung."""
        stalls = [f.event for f in self.findings if f.event.kind == "rank_stall"]
        if not stalls:
            return self.onset_at if self.hung else None
        step_at = self.case.last_progress_at
        went_on = step_at is not None and step_at > max(e.at for e in stalls)
        return None if went_on else step_at or self.onset_at

    @functools.cached_property
    def lost_node(self) -> str | None:
        """The node whose silence ended the attempt: as Slurm names it, else the one that fell silent; None when that is open."""
        if self.attempt.failed_node:
            return self.attempt.failed_node
        if len(self.attempt.nodes) == 1:
            return self.attempt.nodes[0]
        named = next((s.event.node for s in self.of("node_lost")), None)
        quiet = [n for n in self.unwatched_nodes if self.case.watched.get(n) is not None]
        return named or (quiet[0] if len(quiet) == 1 else None)

    @functools.cached_property
    def node_list(self) -> str:
        """The attempt's nodes as Slurm writes them."""
        return hostlist.compress(self.attempt.nodes)

    @functools.cached_property
    def _by_cause(self) -> dict[str, tuple[CaseSighting, ...]]:
        found: dict[str, list[CaseSighting]] = {}
        for s in self.sightings:
            found.setdefault(s.cause, []).append(s)
        return {cause: tuple(sightings) for cause, sightings in found.items()}


def _ends(later: records.HealthEvent, event: records.HealthEvent) -> bool:
    """True when `later` says that the fault of `event` is over; a part by several names counts as several."""
    part = (later.gpu_uuid or later.device, later.node, later.kind)
    return part == (event.gpu_uuid or event.device, event.node, event.kind) and later.at >= event.at


def means_gpu(event: records.HealthEvent, signature: signatures.Signature) -> bool:
    """True for an event about one GPU; also one of the node as a whole that names the GPU it means."""
    named = bool(event.gpu_uuid) or gpus.index_of(event.device) is not None
    return signature.scope is signatures.Scope.GPU or (signature.scope is signatures.Scope.NODE and named)


def build(case: cases.Case) -> EvidenceView | None:
    """The evidence view of a case; None for an attempt that never started or has not ended."""
    attempt = case.attempt
    if attempt.start_at is None or attempt.end_at is None:
        return None
    every = {e.event_id: e for e in (*case.standing, *case.events)}
    events = sorted(every.values(), key=lambda e: (e.at, e.event_id))
    job_side = [e for e in events if findings.is_finding(e) and is_own(e, attempt, case.policy)]
    began = onset.onset(attempt, job_side, None if case.policy.paper else case.last_progress_at)
    stretch = window.window(attempt, began, case.policy)
    handled = _own_handling(case)
    answered = _answered(case, handled)
    known = gpus.learn(events, case.allocations)
    looker = _Looker(case, began, stretch, known, handled, answered)
    sightings = [s for e in events if not findings.is_finding(e) and (s := looker.sighting(e)) is not None]
    return EvidenceView(
        case=case,
        start_at=attempt.start_at,
        end_at=attempt.end_at,
        onset_at=began,
        window=stretch,
        sightings=tuple(sorted(sightings, key=lambda s: (s.at, s.event.event_id))),
        findings=_findings([e for e in job_side if stretch.instant(e) is not None]),
        handled=handled,
        answered=answered,
        not_held=tuple(looker.not_held),
        outside=tuple(looker.outside),
    )


def _findings(job_side: list[records.HealthEvent]) -> tuple[CaseFinding, ...]:
    """The findings of the job side; once one is marked as the first cause, the program's other errors are left out."""
    # What the training went on after ended nothing.
    caused = [e for e in job_side if e.detail.get("survived") is not True]
    found = [CaseFinding(event=e, signature=findings.find(e)) for e in caused]
    if not any(f.event.detail.get("first_cause") is True for f in found):
        return tuple(found)
    return tuple(
        f
        for f in found
        if f.signature.role is not findings.FindingRole.OWN or f.event.detail.get("first_cause") is True
    )


def is_own(event: records.HealthEvent, attempt: records.JobAttempt, policy: cases.WindowPolicy) -> bool:
    """A job-side event belongs to the attempt in whose life, or just after, it was written."""
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    if event.job_id != attempt.job_id:
        return False
    named = event.detail.get("restart_count")
    if isinstance(named, int) and attempt.restart_count is not None and named != attempt.restart_count:
        return False
    # What the job's next start wrote is not this one's.
    last = attempt.end_at + timedelta(seconds=policy.after_s)
    return attempt.start_at - SLACK <= event.at <= last


def _own_handling(case: cases.Case) -> tuple[records.Drain, ...]:
    """What we did to the attempt or its nodes while it ran or just after, oldest first."""
    attempt = case.attempt
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    mine = [
        a
        for a in case.actions
        if a.owner == "probing"
        and a.state == "done"
        and a.action in ("drain", "requeue")
        and (a.job_id == attempt.job_id or (a.job_id is None and a.node in attempt.nodes))
        and attempt.start_at <= a.at <= attempt.end_at + OWN_HANDLING
    ]
    return tuple(sorted(mine, key=lambda a: (a.at, a.drain_id)))


def _answered(case: cases.Case, handled: tuple[records.Drain, ...]) -> frozenset[uuid.UUID]:
    """What the requeue that ended the attempt was decided on; nothing when something else ended it first."""
    attempt = case.attempt
    assert attempt.end_at is not None
    if attempt.state != "REQUEUED":
        return frozenset()
    # Later ones are of the job's next start.
    mine = [a for a in handled if a.action == "requeue" and a.at <= attempt.end_at + SLACK]
    return frozenset(i for a in mine for i in a.event_ids)


class _Looker:
    """Turns one event into a sighting, knowing the case."""

    def __init__(
        self,
        case: cases.Case,
        began: datetime,
        stretch: window.Window,
        known: dict[str, gpus.GpuMap],
        handled: tuple[records.Drain, ...],
        answered: frozenset[uuid.UUID],
    ) -> None:
        self._case, self._began, self._stretch, self._known = case, began, stretch, known
        self._acted_at = handled[0].at if handled else None
        self._own_ids = frozenset(i for a in handled for i in a.event_ids)
        assert case.attempt.start_at is not None
        self._start_at = case.attempt.start_at
        self._nodes = frozenset(case.attempt.nodes)
        self._standing = answered.union(e.event_id for e in case.standing)
        self._until_reset = frozenset(e.event_id for e in case.standing if signatures.is_until_reset(e))
        self.not_held: list[records.HealthEvent] = []
        self.outside: list[records.HealthEvent] = []
        self._allocation = {a.node: a for a in case.allocations if a.job_id == case.attempt.job_id}

    def sighting(self, event: records.HealthEvent) -> CaseSighting | None:
        """None when the event lies outside the window or does not concern the attempt."""
        if event.node not in self._nodes:
            return None
        signature = signatures.of(event)
        attempt = self._case.attempt
        assert attempt.end_at is not None
        stretch = self._stretch
        if not self._case.policy.paper:
            stretch = window.widened(stretch, signature, self._began, attempt.end_at)
        at = stretch.instant(event)
        root = signature.role is signatures.Role.ROOT
        standing = at is None and event.event_id in self._standing and event.at < stretch.start_at
        if standing:
            at = stretch.start_at
        if event.event_id in self._until_reset:
            standing, at = True, event.at
        if at is None:
            self.outside += [event] if root else []
            return None
        known = self._known.get(event.node, gpus.GpuMap())
        # Of a part lost before the start it matters who had the node when the attempt ran.
        hold = self._hold(event, signature, known, max(at, self._start_at) if standing else at)
        if hold is gpus.Hold.NOT:
            self.not_held += [event] if root and means_gpu(event, signature) else []
            return None
        is_gpu = means_gpu(event, signature) and known.is_gpu(event) is not False
        gpu = gpus.gpu_key(event, known) if is_gpu else None
        device = (known.device_of(event) if is_gpu else None) or event.device or event.gpu_uuid
        return CaseSighting(
            event=event,
            signature=signature,
            hold=hold,
            when=When.RUNNING
            if standing
            else self._when(at, polled=event.source in vocabulary.POLLED_SOURCES),
            at=at,
            standing=standing,
            ours=self._acted_at is not None and at > self._acted_at and event.event_id not in self._own_ids,
            taken=not standing and self._taken(event, at),
            gpu=gpu,
            device=device or gpus.pci_key(event.pci_bus_id),
        )

    def _taken(self, event: records.HealthEvent, at: datetime) -> bool:
        end = self._case.attempt.end_at
        assert end is not None
        since = [begin for begin, _ in self._case.shared.get(event.node, ()) if end - SLACK <= begin <= at]
        return bool(since) and at > end + SLACK

    def _when(self, at: datetime, *, polled: bool) -> When:
        attempt = self._case.attempt
        assert attempt.start_at is not None
        assert attempt.end_at is not None
        # What a look found was so before it; Slurm cuts a start to its second, which makes it earlier.
        if at < attempt.start_at - (timedelta() if polled else SLACK):
            return When.BEFORE_START
        return When.AFTER_END if at > attempt.end_at + SLACK else When.RUNNING

    def _hold(
        self, event: records.HealthEvent, signature: signatures.Signature, known: gpus.GpuMap, at: datetime
    ) -> gpus.Hold:
        attempt = self._case.attempt
        if event.job_id is not None:
            return gpus.Hold.HELD if event.job_id == attempt.job_id else gpus.Hold.NOT
        alone = not any(
            since - SLACK <= at and (until is None or at <= until + SLACK)
            for since, until in self._case.shared.get(event.node, ())
        )
        if means_gpu(event, signature):
            if event.kind.startswith("pcie") and known.is_gpu(event) is False:
                # A port or another device: whoever has the whole node sits behind it.
                return gpus.Hold.HELD if alone else gpus.Hold.MAYBE
            return gpus.hold_of_gpu(event, attempt, known, self._allocation.get(event.node), alone=alone)
        if signature.scope is signatures.Scope.LINK and len(attempt.nodes) < 2:
            return gpus.Hold.MAYBE
        if event.kind == "oom" and event.job_id is None and not alone:
            return gpus.Hold.MAYBE
        return gpus.Hold.HELD
