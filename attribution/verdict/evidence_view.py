"""The evidence view: a case's events, sorted, placed in time and assigned to what the attempt held (see view_builder)."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import findings, gpus, onset, signatures, taxonomy, window
from probing_cluster.core import hostlist, records, vocabulary

SLACK = timedelta(seconds=2)
"""Slurm's times are whole seconds, and clocks differ a little."""

LOG_END = timedelta(seconds=60)
"""A fault at most this long before the log's end is the last thing that the log shows."""

NEARLY = 0.98
"""An attempt that ran for this share of its time limit has reached it."""

_STILL_RETURNING = timedelta(minutes=10)
"""A fault that came back no longer than this before the end may have had a part in it."""

CRASHES = frozenset({4, 8, 11})
"""SIGILL, SIGFPE, SIGSEGV: the program's own errors, whatever else failed."""

LAUNCH_REASONS = frozenset({"JobLaunchFailure", "launch_failed", "Prolog", "BadConstraints", "SystemFailure"})
"""Reasons in the accounting that mean that Slurm could not start the job."""


class EventPhase(StrEnum):
    """Whether an event lies before, inside or after the attempt's run."""

    BEFORE_START = "before_start"
    RUNNING = "running"
    AFTER_END = "after_end"


@dataclass(frozen=True, kw_only=True)
class CaseSighting:
    """One node event that counts for the attempt."""

    event: records.HealthEvent
    signature: signatures.Signature
    hold: gpus.PartCertainty
    when: EventPhase
    at: datetime
    """The time that counts; for a fault from before the window, the window's begin (a lost GPU keeps its own time)."""
    still_active: bool
    """True for a fault that began before the window and lasted into it, or for which we requeued the job."""
    after_own_action: bool
    """True if our own action had begun: the event may be a consequence of it."""
    of_later_attempt: bool
    """True if a later attempt already ran on the node when the event came; the event belongs to that one."""
    gpu: str | None
    """The GPU's key, if the event is about a GPU."""
    device: str | None
    """The device's usual name: gpu3, mlx5_0, /scratch."""

    @property
    def last_at(self) -> datetime:
        """Time of the last sighting that a coalesced event stands for."""
        return max(self.at, self.event.last_at or self.at)

    @property
    def cause(self) -> str:
        """The cause that the signature names."""
        return self.signature.cause


@dataclass(frozen=True, kw_only=True)
class CaseFinding:
    """One finding from the job's side (log, dump, probe page) and its signature."""

    event: records.HealthEvent
    signature: findings.FindingSignature


@dataclass(frozen=True, kw_only=True)
class EvidenceView:
    """The input of the rules."""

    case: cases.Case
    start_at: datetime
    end_at: datetime
    onset_at: datetime
    window: window.Window
    sightings: tuple[CaseSighting, ...]
    """Node events that concern the attempt, oldest first."""
    findings: tuple[CaseFinding, ...]
    further_errors: tuple[CaseFinding, ...]
    """The program's other errors beside the one marked as first cause, oldest first."""
    worked_after: datetime | None
    """Until several steps after this its log shows that it worked (`onset.worked_after`); None if no log does."""
    own_actions: tuple[records.Drain, ...]
    """Our drains of its nodes and requeues of it, while it ran or just after, oldest first."""
    requeue_event_ids: frozenset[uuid.UUID] = frozenset()
    """Events for which we requeued the attempt: they ended it, whether or not it felt them."""
    requeued_by_us: str = ""
    """`requeued by us (probing: xid 79 gpu3)` if that ended the attempt; else empty."""
    not_held: tuple[records.HealthEvent, ...] = ()
    """Root faults in the window on GPUs that its nodes have and it did not hold, oldest first."""
    outside: tuple[records.HealthEvent, ...] = ()
    """Root faults on its nodes outside the window, oldest first."""
    survived: tuple[records.HealthEvent, ...] = ()
    """Those of them of parts that it held, while it ran, before the window: it went on. Oldest first."""

    @property
    def attempt(self) -> records.JobAttempt:
        """The attempt judged."""
        return self.case.attempt

    @property
    def state(self) -> str:
        """Slurm's base state."""
        return self.case.attempt.state

    @property
    def ran_s(self) -> float:
        """Seconds of running, without suspension."""
        return (self.end_at - self.start_at).total_seconds() - self.attempt.suspended_s

    @property
    def cancelled_by_root(self) -> bool:
        """True if it was cancelled in root's name: by an administrator, or by Slurm itself."""
        return self.attempt.cancelled_by in ("root", "0")

    @property
    def gpus_per_node(self) -> float:
        """GPUs that it held of each node, 0 if unknown."""
        return (self.attempt.n_gpus or 0) / max(len(self.attempt.nodes), 1)

    @property
    def has_ranks(self) -> bool:
        """True if it held several nodes or GPUs, so that its processes may wait for each other."""
        return len(self.attempt.nodes) > 1 or (self.attempt.n_gpus or 0) > 1

    @property
    def within_limit(self) -> bool:
        """True if it ended well before its recorded time limit."""
        return bool(self.attempt.time_limit_s) and self.ran_s < NEARLY * (self.attempt.time_limit_s or 0)

    @property
    def never_launched(self) -> bool:
        """True if Slurm could not start the job: the exit code is then not a program's."""
        return self.state == "FAILED" and self.attempt.reason in LAUNCH_REASONS

    def of(self, *causes: str) -> tuple[CaseSighting, ...]:
        """Sightings whose cause is one of these, oldest first."""
        # Rules ask forty times a case, and nearly always no sighting has the cause.
        there = [c for c in causes if c in self._by_cause]
        if len(there) < 2:
            return self._by_cause[there[0]] if there else ()
        return tuple(s for s in self.sightings if s.cause in there)

    @property
    def causes(self) -> Collection[str]:
        """The causes of all sightings."""
        return self._by_cause.keys()

    @functools.cached_property
    def stalls(self) -> tuple[records.HealthEvent, ...]:
        """The case's stalls, oldest first: a verdict names the first, and the database returns them in any order."""
        return tuple(sorted(self.case.stalls, key=lambda e: (e.at, e.event_id)))

    @functools.cached_property
    def lost_gpus(self) -> tuple[CaseSighting, ...]:
        """GPUs lost by the attempt's end, oldest first, without those that it certainly did not hold.

        A GPU lost before the window counts only if it did not come back by the end. For one lost inside the window this is not checked.
        """
        found = [
            s for s in self.sightings if s.signature.role is signatures.Role.ROOT and s.at <= self.end_at
        ]
        return tuple(s for s in found if taxonomy.cause(s.cause).until_reset)

    @functools.cached_property
    def disturbances(self) -> tuple[CaseSighting, ...]:
        """Faults on its nodes up to its end, oldest first, without the program's own GPU errors, consequences and recoveries."""
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
            and not s.after_own_action
            and s.at <= self.end_at + SLACK
        )

    @functools.cached_property
    def active_at_the_end(self) -> tuple[records.HealthEvent, ...]:
        """Root faults of parts it held that no event reports as over at its end, oldest first."""
        over = [e for e in self.case.events if e.at <= self.end_at and signatures.of(e).recovery]
        held = (s for s in self.disturbances if s.hold is not gpus.PartCertainty.MAYBE)
        left = (s.event for s in held if s.signature.role is signatures.Role.ROOT)
        return tuple(e for e in left if not any(_ends(later, e) for later in over))

    @functools.cached_property
    def left_behind(self) -> tuple[records.HealthEvent, ...]:
        """Root faults outside the window, but while it ran, that no event reports as over at its end, oldest first."""
        over = [e for e in self.case.events if e.at <= self.end_at and signatures.of(e).recovery]
        during = [e for e in self.outside if self.start_at <= e.at <= self.end_at]
        return tuple(e for e in during if not any(_ends(later, e) for later in over))

    @functools.cached_property
    def returning(self) -> tuple[records.HealthEvent, ...]:
        """Root faults shortly before its end that came back after a report of their end, oldest first: a further such report is no proof."""
        roots = [s.event for s in self.disturbances if s.signature.role is signatures.Role.ROOT]
        over = [e for e in self.case.events if e.at <= self.end_at and signatures.of(e).recovery]
        pairs = [(first, back) for first in roots for back in over if _ends(back, first)]
        late = [e for e in roots if self.end_at - e.at <= _STILL_RETURNING]
        return tuple(e for e in late if any(first.at < e.at and _ends(e, back) for first, back in pairs))

    def consequences(self, node: str | None) -> tuple[CaseSighting, ...]:
        """Sightings on `node` that are consequences of a fault there: Xid 43, 45 and the like."""
        return tuple(
            s
            for s in self.sightings
            if s.signature.role is signatures.Role.CONSEQUENCE and s.event.node == node
        )

    @functools.cached_property
    def signal(self) -> int:
        """Signal that ended the batch script, from Slurm or from a shell's exit code; 0 if none."""
        return self.attempt.exit_signal or vocabulary.signal_of(self.attempt.exit_code or 0)

    @property
    def crashed(self) -> bool:
        """True for SIGILL, SIGFPE or SIGSEGV."""
        return self.signal in CRASHES

    @functools.cached_property
    def unwatched_nodes(self) -> tuple[str, ...]:
        """Nodes of the attempt that nothing watched at its end: no report is no proof of health."""
        # `agent_silent` carries the time of the last heartbeat. After the end, it proves that the end was watched, and so
        # does a later heartbeat. A replacement agent that came after the end does not count (`watched` leaves it out).
        last = self.case.watched
        silences = (s.event for s in self.sightings if s.event.kind == "agent_silent")
        silent = {
            event.node
            for event in silences
            if event.at <= self.end_at
            and ((last_sign := last.get(event.node)) is None or last_sign <= event.at + SLACK)
        }
        silent |= self.case.away
        least = self.onset_at - timedelta(seconds=60)
        return tuple(
            n for n in self.attempt.nodes if n in silent or (at := last.get(n)) is None or at < least
        )

    @functools.cached_property
    def unheard_nodes(self) -> tuple[str, ...]:
        """Nodes whose agent was silent at the attempt's end."""
        agents = (n for n in self.unwatched_nodes if n not in self.case.by_log)
        return tuple(n for n in agents if self.case.watched.get(n) is not None)

    @functools.cached_property
    def watched_nodes(self) -> tuple[str, ...]:
        """Nodes that were watched when the failure began: by an agent, or by a kernel log that reaches that far."""
        unwatched = frozenset(self.unwatched_nodes)
        return tuple(n for n in self.attempt.nodes if n not in unwatched)

    @functools.cached_property
    def logged_nodes(self) -> frozenset[str]:
        """Nodes without an agent whose kernel log begins before the end, so that kernel messages of the end would be in it.

        The age of the last line proves little: a healthy kernel writes nothing.
        """
        return frozenset(n for n in self.case.by_log if self.case.watched.get(n) is not None)

    def log_ends_s(self, node: str) -> float | None:
        """Seconds from the end of an agentless node's log to the attempt's end, negative if the log is longer; None without a log."""
        last = self.case.watched.get(node) if node in self.case.by_log else None
        return None if last is None else (self.end_at - last).total_seconds()

    def ends_in(self, node: str) -> records.HealthEvent | None:
        """The fault at the end of the node's log, if it lies too long before the attempt's end to be evidence."""
        last = self.case.watched.get(node)
        found = [e for e in self.outside if e.node == node and last is not None and last - e.at <= LOG_END]
        return found[-1] if found else None

    @functools.cached_property
    def blind_spots(self) -> str:
        """Phrase that names the nodes nobody watched and those whose log ends before the attempt's end."""
        logs = [n for n in self.unwatched_nodes if self.log_ends_s(n) is not None]
        nobody = [n for n in self.unwatched_nodes if n not in logs]
        ends = f"the log{'s' if len(logs) > 1 else ''} of {hostlist.compress(logs)} end{'' if len(logs) > 1 else 's'} before"
        parts = [f"nobody watched {hostlist.compress(nobody)} then"] if nobody else []
        return " and ".join([*parts, ends] if logs else parts)

    @functools.cached_property
    def partly_watched_nodes(self) -> tuple[str, ...]:
        """Nodes that were not watched at its end, or that have only a log that does not cover its whole run."""
        unseen = self.case.by_log - self.case.by_whole_log | frozenset(self.unwatched_nodes)
        return tuple(n for n in self.attempt.nodes if n in unseen)

    @property
    def fully_watched(self) -> bool:
        """True if every node was watched at its end, and agentless ones by a log that covers the whole run."""
        return bool(self.attempt.nodes) and not self.partly_watched_nodes

    @functools.cached_property
    def log_was_read(self) -> bool:
        """True if the job's side was read: there are findings, or an agent, which reads job logs, ran on a node."""
        last = self.case.watched
        agents = (n for n in self.attempt.nodes if n not in self.case.by_log)
        at_work = (
            n in self.watched_nodes or ((at := last.get(n)) is not None and at >= self.start_at)
            for n in agents
        )
        return bool(self.findings) or any(at_work)

    @functools.cached_property
    def hung(self) -> bool:
        """True if the job's side reports ranks that waited in vain."""
        dumps = (f.event.detail for f in self.findings if f.event.kind == "dump")
        return any(d.get("outstanding") for d in dumps) or any(f.signature.onset for f in self.findings)

    @functools.cached_property
    def hung_since(self) -> datetime | None:
        """Time of the last progress of a job that hung until its end; None if it did not hang or nothing shows it."""
        reported = any(f.event.kind == "rank_stall" for f in self.findings)
        hung = self.ranks_stalled if reported else self.hung
        return ((self.case.last_progress_at if reported else None) or self.onset_at) if hung else None

    @functools.cached_property
    def ranks_stalled(self) -> bool:
        """True if the probe reported a stall of its ranks and no progress after it."""
        reported = [f.event for f in self.findings if f.event.source == "probe"]
        stalls = [e.at for e in onset.lasting_stalls(reported, self.end_at)]
        step_at = self.case.last_progress_at
        return bool(stalls) and (step_at is None or step_at <= max(stalls))

    @functools.cached_property
    def log_stall(self) -> records.HealthEvent | None:
        """The finding that its log stood still until the end; None without one, or if the probe saw a later step."""
        return onset.log_stall((f.event for f in self.findings), self.case.last_progress_at)

    @functools.cached_property
    def output_stall(self) -> records.HealthEvent | None:
        """The finding that nothing was written to its output until the end; None without one, or if `log_stall` dates a standstill."""
        return onset.output_stall((f.event for f in self.findings), self.case.last_progress_at)

    @functools.cached_property
    def stalled_at(self) -> datetime | None:
        """Time since which it made no progress until its end, by ranks, log or the awaited collective; None if nothing shows a stall."""
        by_log = onset.stalled_since(self.log_stall) if self.log_stall is not None else None
        known = [at for at in (self.hung_since, by_log) if at is not None and at < self.end_at]
        return max(self.start_at, min(known)) if known else None

    @functools.cached_property
    def left_waiting(self) -> bool:
        """True if one of several ranks raised an exception: the others wait for it until somebody ends the job."""
        return self.has_ranks and any(
            f.signature.role is findings.FindingRole.OWN
            and f.signature.cause == "user_error"
            and f.event.detail.get("first_cause") is True
            and f.event.detail.get("rank") is not None
            for f in self.findings
        )

    @functools.cached_property
    def node_list(self) -> str:
        """The attempt's nodes as a Slurm hostlist."""
        return hostlist.compress(self.attempt.nodes)

    @functools.cached_property
    def _by_cause(self) -> dict[str, tuple[CaseSighting, ...]]:
        found: dict[str, list[CaseSighting]] = {}
        for s in self.sightings:
            found.setdefault(s.cause, []).append(s)
        return {cause: tuple(sightings) for cause, sightings in found.items()}


def _ends(later: records.HealthEvent, event: records.HealthEvent) -> bool:
    """True if `later` is of the same kind, node and part and not earlier. A part under two names counts as two."""
    part = (later.gpu_uuid or later.device, later.node, later.kind)
    return part == (event.gpu_uuid or event.device, event.node, event.kind) and later.at >= event.at
