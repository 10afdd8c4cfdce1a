"""Builds the evidence view: places each event in the attempt's run and decides whether it concerns the attempt."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import findings, gpus, onset, recovery, signatures, window
from probing_cluster.attribution.verdict.evidence_view import (
    SLACK,
    CaseFinding,
    CaseSighting,
    EventPhase,
    EvidenceView,
)
from probing_cluster.core import records, vocabulary
from probing_cluster.core.catalogue import fault_names

OWN_ACTION_SLACK = timedelta(seconds=30)
"""A drain or requeue up to this long after the end still belongs to the attempt."""
_REPAIR_BEGINS = timedelta(seconds=30)
"""A repair resets or reboots a drained node no sooner after its last job: it is reserved and tested first."""
_COUNTED = timedelta(seconds=60)
"""The check that counts GPUs and the library's own report of a missing driver come so close together."""
_NOTHING_KNOWN = gpus.GpuMap()


def means_gpu(event: records.HealthEvent, signature: signatures.Signature) -> bool:
    """True for an event about one GPU, also for a node event that names a GPU."""
    named = bool(event.gpu_uuid) or gpus.index_of(event.device) is not None
    return signature.scope is signatures.Scope.GPU or (signature.scope is signatures.Scope.NODE and named)


def _part(event: records.HealthEvent) -> str | None:
    """The part that the event names; a check of the whole node bears its own name in that place."""
    return None if event.kind == "check" and event.device == event.code else event.device


def build(case: cases.Case) -> EvidenceView | None:
    """The evidence view of a case; None if the attempt never started or has not ended."""
    attempt = case.attempt
    if attempt.start_at is None or attempt.end_at is None:
        return None
    # Keyed by the integer: hashing a UUID is a Python-level call.
    every = {e.event_id.int: e for e in (*case.active_faults, *case.events)}
    events = sorted(every.values(), key=lambda e: (e.at, e.event_id))
    job_side = [e for e in events if findings.is_finding(e) and is_own(e, attempt, case.policy)]
    began = onset.onset(attempt, job_side, None if case.policy.paper else case.last_progress_at)
    stretch = window.window(attempt, began, case.policy, onset.unanswered_s(attempt, job_side))
    own_actions = _own_actions(case)
    requeues = _requeues(case, own_actions)
    requeue_event_ids = frozenset(i for a in requeues for i in a.event_ids)
    known = gpus.learn(events, case.allocations)
    builder = _SightingBuilder(case, stretch, known, own_actions, requeue_event_ids)
    sightings = [s for e in events if not findings.is_finding(e) and (s := builder.sighting(e)) is not None]
    sightings = recovery.without_repaired(sightings, attempt.start_at)
    worked_after = onset.worked_after(job_side)
    # That a job was at work is no finding about its end.
    inside = [e for e in job_side if stretch.instant(e) is not None and e.kind != vocabulary.LOG_PROGRESS]
    found, further = _findings(inside)
    return EvidenceView(
        case=case,
        start_at=attempt.start_at,
        end_at=attempt.end_at,
        onset_at=began,
        window=stretch,
        sightings=tuple(sorted(sightings, key=lambda s: (s.at, s.event.event_id))),
        findings=found,
        further_errors=further,
        worked_after=worked_after,
        own_actions=own_actions,
        requeue_event_ids=requeue_event_ids,
        requeued_by_us=_requeued_by_us(case, requeues),
        not_held=tuple(builder.not_held),
        outside=tuple(builder.outside),
        survived=tuple(builder.survived),
    )


def _findings(
    job_side: list[records.HealthEvent],
) -> tuple[tuple[CaseFinding, ...], tuple[CaseFinding, ...]]:
    """The job side's findings. If one is marked as the first cause, the program's other errors come second, apart."""
    # An error that the training survived ended nothing.
    caused = [e for e in job_side if e.detail.get("survived") is not True]
    found = [CaseFinding(event=e, signature=findings.find(e)) for e in caused]
    if not any(f.event.detail.get("first_cause") is True for f in found):
        return tuple(found), ()
    further = [
        f
        for f in found
        if f.signature.role is findings.FindingRole.OWN and f.event.detail.get("first_cause") is not True
    ]
    return tuple(f for f in found if f not in further), tuple(further)


def is_own(event: records.HealthEvent, attempt: records.JobAttempt, policy: cases.WindowPolicy) -> bool:
    """True if a job-side event was written during this attempt or just after it."""
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    if event.job_id != attempt.job_id:
        return False
    # The agent reports these for every log that was silent at its job's end. A job that ended by itself was at work
    # then, or waited until its error; UNTIL_ERROR marks the second.
    if event.kind in (vocabulary.LOG_STALL, vocabulary.OUTPUT_STALL):
        ended = attempt.state in vocabulary.ENDED_FROM_OUTSIDE
        if ended is (event.detail.get(vocabulary.UNTIL_ERROR) is True):
            return False
    named = event.detail.get("restart_count")
    if isinstance(named, int) and attempt.restart_count is not None:
        if named != attempt.restart_count:
            return False
    elif event.source == "probe" and _is_of_another_start(event, attempt):
        return False
    # The next start of the same job wrote what came later.
    last = attempt.end_at + timedelta(seconds=policy.after_s)
    return attempt.start_at - SLACK <= event.at <= last


def _is_of_another_start(event: records.HealthEvent, attempt: records.JobAttempt) -> bool:
    """True if ranks that the attempt did not have are reported: on another node, or at work after its end."""
    assert attempt.end_at is not None
    at_work = event.kind == "rank_stall" and event.at > attempt.end_at + SLACK
    return at_work or bool(attempt.nodes and event.node not in attempt.nodes)


def _own_actions(case: cases.Case) -> tuple[records.Drain, ...]:
    """Our drains and requeues of the attempt or its nodes, while it ran or just after, oldest first."""
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
        and attempt.start_at <= a.at <= attempt.end_at + OWN_ACTION_SLACK
    ]
    return tuple(sorted(mine, key=lambda a: (a.at, a.drain_id)))


def _requeues(case: cases.Case, own_actions: tuple[records.Drain, ...]) -> list[records.Drain]:
    """Our requeues that ended the attempt; empty if something else ended it first."""
    attempt = case.attempt
    assert attempt.end_at is not None
    if attempt.state != "REQUEUED":
        return []
    # A later requeue is of the job's next start.
    return [a for a in own_actions if a.action == "requeue" and a.at <= attempt.end_at + SLACK]


def _requeued_by_us(case: cases.Case, requeues: list[records.Drain]) -> str:
    """The requeue in words, and whether a person had drained the node first: only then did the policy act on its jobs."""
    if not requeues:
        return ""
    first, start_at = requeues[0], case.attempt.start_at
    assert start_at is not None
    by_hand = any(
        a.action == "drain"
        and a.owner != "probing"
        and a.state in ("done", "resumed")
        and a.node == first.node
        and start_at <= a.at <= first.at
        for a in case.actions
    )
    return f"requeued by us ({first.reason}{f', after an operator drained {first.node}' if by_hand else ''})"


class _SightingBuilder:
    """Turns events of one case into sightings."""

    def __init__(
        self,
        case: cases.Case,
        stretch: window.Window,
        known: dict[str, gpus.GpuMap],
        own_actions: tuple[records.Drain, ...],
        requeue_event_ids: frozenset[uuid.UUID],
    ) -> None:
        self._case, self._stretch, self._known = case, stretch, known
        self._requeued_at = min((a.at for a in own_actions if a.action == "requeue"), default=None)
        self._drained_at = {a.node: a.at for a in reversed(own_actions) if a.action == "drain"}
        self._own_ids = frozenset(i for a in own_actions for i in a.event_ids)
        assert case.attempt.start_at is not None
        self._start_at = case.attempt.start_at
        self._nodes = frozenset(case.attempt.nodes)
        self._active_faults = requeue_event_ids.union(e.event_id for e in case.active_faults)
        self._until_reset = frozenset(e.event_id for e in case.active_faults if signatures.is_until_reset(e))
        self.not_held: list[records.HealthEvent] = []
        self.outside: list[records.HealthEvent] = []
        self.survived: list[records.HealthEvent] = []
        self._allocation = {a.node: a for a in case.allocations if a.job_id == case.attempt.job_id}

    def sighting(self, event: records.HealthEvent) -> CaseSighting | None:
        """The sighting; None if the event lies outside the window or does not concern the attempt."""
        if event.node not in self._nodes:
            return None
        driver = self._driver_of(event)
        signature = signatures.of(driver or event)
        attempt = self._case.attempt
        assert attempt.end_at is not None
        stretch = self._stretch
        boot = event.kind == window.BOOT and window.given_up(attempt) and event.node in self._case.by_log
        if boot and not self._case.policy.paper:
            stretch = window.Window(
                start_at=stretch.start_at, end_at=window.reboot_window(attempt, stretch).end_at
            )
        at = stretch.instant(event)
        root = signature.role is signatures.Role.ROOT
        still_active = at is None and event.at < stretch.start_at and event.event_id in self._active_faults
        if still_active:
            at = stretch.start_at
        if self._until_reset and event.event_id in self._until_reset:
            still_active, at = True, event.at
        known = self._known.get(event.node, _NOTHING_KNOWN)
        of_gpu = means_gpu(event, signature)
        if at is None:
            self.outside += [event] if root else []
            if root and self._start_at <= event.at < stretch.start_at:
                held = self._hold(event, signature, known, event.at, of_gpu=of_gpu)
                self.survived += (
                    [event] if held in (gpus.PartCertainty.HELD, gpus.PartCertainty.WHOLE) else []
                )
            return None
        # For a part lost before the start, the allocation counts from the start on.
        since = max(at, self._start_at) if still_active else at
        hold = self._hold(event, signature, known, since, of_gpu=of_gpu)
        if hold is gpus.PartCertainty.NOT:
            self.not_held += [event] if root and of_gpu else []
            return None
        is_gpu = of_gpu and known.is_gpu(event) is not False
        gpu = gpus.gpu_key(event, known) if is_gpu else None
        device = (known.device_of(event) if is_gpu else None) or _part(driver or event) or event.gpu_uuid
        return records.of_checked(
            CaseSighting,
            {
                "event": event,
                "signature": signature,
                "hold": hold,
                "when": EventPhase.RUNNING
                if still_active
                else self._when(at, polled=event.source in vocabulary.POLLED_SOURCES),
                "at": at,
                "still_active": still_active,
                "after_own_action": self._is_after_own_action(event.node, at)
                and event.event_id not in self._own_ids,
                "of_later_attempt": not still_active and self._is_of_later_attempt(event, at),
                "gpu": gpu,
                "device": device or gpus.pci_key(event.pci_bus_id),
            },
        )

    def _driver_of(self, event: records.HealthEvent) -> records.HealthEvent | None:
        """The report that the GPUs' driver is gone, of which `event`, the count of the node's GPUs, is only a sign; None for any other event.

        Without the driver the check misses all of them, and may be first to do so.
        """
        if (event.kind, event.code) != ("check", fault_names.COUNT) or _part(event) is not None:
            return None
        gone = (
            e
            for e in self._case.events
            if e.kind == "driver"
            and e.node == event.node
            and e.device in fault_names.LIBRARIES
            and abs(e.at - event.at) <= _COUNTED
            and (e.detail.get("recovered") is True) == (event.detail.get("recovered") is True)
        )
        return next(gone, None)

    def _is_after_own_action(self, node: str, at: datetime) -> bool:
        """True if the event may be our own doing: after our requeue, or during the repair of the node that we drained.

        A drain alone changes nothing: a fault before or just after the job's end is a real one.
        """
        if self._requeued_at is not None and at > self._requeued_at:
            return True
        drained_at, end_at = self._drained_at.get(node), self._case.attempt.end_at
        assert end_at is not None
        return drained_at is not None and at > max(drained_at, end_at) + _REPAIR_BEGINS

    def _is_of_later_attempt(self, event: records.HealthEvent, at: datetime) -> bool:
        end = self._case.attempt.end_at
        assert end is not None
        if at <= end + SLACK:
            return False
        return any(end <= begin <= at for begin, _ in self._case.shared.get(event.node, ()))

    def _when(self, at: datetime, *, polled: bool) -> EventPhase:
        attempt = self._case.attempt
        assert attempt.start_at is not None
        assert attempt.end_at is not None
        # A polled state was already so before the reading. Slurm truncates a start to its second, so it may be early.
        if at < attempt.start_at - (timedelta() if polled else SLACK):
            return EventPhase.BEFORE_START
        return EventPhase.AFTER_END if at > attempt.end_at + SLACK else EventPhase.RUNNING

    def _hold(
        self,
        event: records.HealthEvent,
        signature: signatures.Signature,
        known: gpus.GpuMap,
        at: datetime,
        *,
        of_gpu: bool,
    ) -> gpus.PartCertainty:
        attempt = self._case.attempt
        if event.job_id is not None:
            return gpus.PartCertainty.HELD if event.job_id == attempt.job_id else gpus.PartCertainty.NOT
        if event.kind == "oom" and self._is_of_another_jobs_kill(event):
            return gpus.PartCertainty.NOT
        alone = not any(
            since - SLACK <= at and (until is None or at <= until + SLACK)
            for since, until in self._case.shared.get(event.node, ())
        )
        if of_gpu:
            if event.kind.startswith("pcie") and known.is_gpu(event) is False:
                # A port or another device: a job that has the whole node uses it.
                return gpus.PartCertainty.HELD if alone else gpus.PartCertainty.MAYBE
            return gpus.hold_of_gpu(event, attempt, known, self._allocation.get(event.node), alone=alone)
        if signature.scope is signatures.Scope.LINK and not cases.may_have_peers(attempt):
            return gpus.PartCertainty.MAYBE
        if event.kind == "oom" and event.job_id is None and not alone:
            return gpus.PartCertainty.MAYBE
        return gpus.PartCertainty.HELD

    def _is_of_another_jobs_kill(self, event: records.HealthEvent) -> bool:
        """True for a line about a memory kill that names no job, beside the line that names another job as its victim.

        The kernel names the group in one of the lines about a kill only.
        """
        if event.code != "invoked" and event.pid is None:
            return False
        victims = {
            e.job_id
            for e in self._case.events
            if e.kind == "oom"
            and e.job_id is not None
            and e.node == event.node
            and abs(e.at - event.at) <= SLACK
            and (event.code == "invoked" or e.pid == event.pid)
        }
        return bool(victims) and self._case.attempt.job_id not in victims
