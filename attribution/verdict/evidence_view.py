"""What the rules look at: a case's events sorted, placed in time and tied (or not) to the attempt; view_builder makes it."""

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
"""Slurm's times are whole seconds and clocks differ a little."""

LOG_END = timedelta(seconds=60)
"""A fault so shortly before the end of its node's log is what that ends with."""

NEARLY = 0.98
"""Share of its time limit from which on an attempt counts as having reached it."""

CRASHES = frozenset({4, 8, 11})
"""Illegal instruction, arithmetic, segmentation: a program does these to itself, whatever else went away."""


LAUNCH_REASONS = frozenset({"JobLaunchFailure", "launch_failed", "Prolog", "BadConstraints", "SystemFailure"})
"""Reasons in the accounting with which Slurm says that it could not start a job."""


class EventPhase(StrEnum):
    """Whether an event lies before, in or after the attempt's run."""

    BEFORE_START = "before_start"
    RUNNING = "running"
    AFTER_END = "after_end"


@dataclass(frozen=True, kw_only=True)
class CaseSighting:
    """One node event inside the window, and how it concerns the attempt."""

    event: records.HealthEvent
    signature: signatures.Signature
    hold: gpus.PartCertainty
    when: EventPhase
    at: datetime
    """The instant that counts, inside the window."""
    still_active: bool
    """True for what began before the window: a condition that stood in it, or what we requeued the job for."""
    after_own_action: bool
    """True when our own handling had begun: it may be a consequence of that."""
    of_later_attempt: bool
    """True for what came after the end while another attempt, begun since, already ran there: it is that one's."""
    gpu: str | None
    """One name for the GPU, when the event means one."""
    device: str | None
    """The device as people call it: gpu3, mlx5_0, /scratch."""

    @property
    def last_at(self) -> datetime:
        """Time of the last of the equal lines that are this event; the times of those between are not known."""
        return max(self.at, self.event.last_at or self.at)

    @property
    def cause(self) -> str:
        """The cause it points at."""
        return self.signature.cause

    @property
    def is_earlier_kill(self) -> bool:
        """Whether it was a kill for memory of before the job: that ends with itself."""
        return self.cause == "oom_host" and self.when is EventPhase.BEFORE_START


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
    further_errors: tuple[CaseFinding, ...]
    """Errors of the program's own beside the one that is marked as the first cause, oldest first."""
    own_actions: tuple[records.Drain, ...]
    """Our own drains of its nodes and requeues of it while it ran or just after, oldest first."""
    requeue_event_ids: frozenset[uuid.UUID] = frozenset()
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
    def ran_s(self) -> float:
        """Seconds it ran, without those it was suspended."""
        return (self.end_at - self.start_at).total_seconds() - self.attempt.suspended_s

    @property
    def within_limit(self) -> bool:
        """True when it ended well before the time limit that is recorded."""
        return bool(self.attempt.time_limit_s) and self.ran_s < NEARLY * (self.attempt.time_limit_s or 0)

    @property
    def never_launched(self) -> bool:
        """True when the accounting says that Slurm could not start the job: its exit code is then no program's."""
        return self.state == "FAILED" and self.attempt.reason in LAUNCH_REASONS

    def of(self, *causes: str) -> tuple[CaseSighting, ...]:
        """The sightings that point at one of these causes, oldest first."""
        # Rules ask forty times a case, nearly always for causes that nothing points at.
        there = [c for c in causes if c in self._by_cause]
        if len(there) < 2:
            return self._by_cause[there[0]] if there else ()
        return tuple(s for s in self.sightings if s.cause in there)

    @property
    def causes(self) -> Collection[str]:
        """The causes that any sighting points at."""
        return self._by_cause.keys()

    @functools.cached_property
    def stalls(self) -> tuple[records.HealthEvent, ...]:
        """The case's stalls, oldest first: a verdict names the first, and the database gives them in any order."""
        return tuple(sorted(self.case.stalls, key=lambda e: (e.at, e.event_id)))

    @functools.cached_property
    def lost_gpus(self) -> tuple[CaseSighting, ...]:
        """GPUs lost by the attempt's end, oldest first; those it surely did not hold are left out.

        Of those lost before the window only the ones that nobody saw come back by the end; of those lost inside it no return is looked for.
        """
        found = [
            s for s in self.sightings if s.signature.role is signatures.Role.ROOT and s.at <= self.end_at
        ]
        return tuple(s for s in found if taxonomy.cause(s.cause).until_reset)

    @functools.cached_property
    def disturbances(self) -> tuple[CaseSighting, ...]:
        """Every fault on its nodes up to its end, oldest first, without what a program does itself."""
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
        """Faults of what it held that nothing says were over when it ended, oldest first."""
        over = [e for e in self.case.events if e.at <= self.end_at and signatures.of(e).recovery]
        left = [
            s.event
            for s in self.disturbances
            if s.signature.role is signatures.Role.ROOT and s.hold is not gpus.PartCertainty.MAYBE
        ]
        return tuple(e for e in left if not any(_ends(later, e) for later in over))

    @functools.cached_property
    def left_behind(self) -> tuple[records.HealthEvent, ...]:
        """Faults of what it held, of well before its end but while it ran, that nothing says were over, oldest first."""
        over = [e for e in self.case.events if e.at <= self.end_at and signatures.of(e).recovery]
        during = [e for e in self.outside if self.start_at <= e.at <= self.end_at]
        return tuple(e for e in during if not any(_ends(later, e) for later in over))

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
        return self.attempt.exit_signal or vocabulary.signal_of(self.attempt.exit_code or 0)

    @property
    def crashed(self) -> bool:
        """True when a process broke the rules of its own address space or arithmetic."""
        return self.signal in CRASHES

    @functools.cached_property
    def unwatched_nodes(self) -> tuple[str, ...]:
        """Nodes of the attempt nobody watched at its end: not seeing is not health."""
        # Such an event bears the time of the last beat: one after the end says that the end was watched, and so does
        # an agent that was heard since. (A new one that was not there at the end is not taken for it: `watched` knows.)
        last = self.case.watched
        silences = (s.event for s in self.sightings if s.event.kind == "agent_silent")
        silent = {
            event.node
            for event in silences
            if event.at <= self.end_at
            and ((heard := last.get(event.node)) is None or heard <= event.at + SLACK)
        }
        least = self.onset_at - timedelta(seconds=60)
        return tuple(
            n for n in self.attempt.nodes if n in silent or (at := last.get(n)) is None or at < least
        )

    @functools.cached_property
    def watched_nodes(self) -> tuple[str, ...]:
        """Nodes of the attempt that were watched when its failure began: by an agent, or where there was none by a log that reaches so far."""
        unwatched = frozenset(self.unwatched_nodes)
        return tuple(n for n in self.attempt.nodes if n not in unwatched)

    @functools.cached_property
    def logged_nodes(self) -> frozenset[str]:
        """Nodes without an agent whose kernel log had begun before the end: what the kernel tells would stand in it.

        How long it has said nothing proves little: a kernel that meets nothing writes nothing.
        """
        return frozenset(n for n in self.case.by_log if self.case.watched.get(n) is not None)

    def log_ends_s(self, node: str) -> float | None:
        """How long before the end the log of a node without an agent ends, seconds; negative when after it, None without a log."""
        last = self.case.watched.get(node) if node in self.case.by_log else None
        return None if last is None else (self.end_at - last).total_seconds()

    def ends_in(self, node: str) -> records.HealthEvent | None:
        """The fault that the node's log ends with, where that was too long before the end to be evidence."""
        last = self.case.watched.get(node)
        found = [e for e in self.outside if e.node == node and last is not None and last - e.at <= LOG_END]
        return found[-1] if found else None

    @functools.cached_property
    def blind_spots(self) -> str:
        """Who was not watched at the end, for a sentence: nodes nobody watched, and nodes whose log ends before."""
        logs = [n for n in self.unwatched_nodes if self.log_ends_s(n) is not None]
        nobody = [n for n in self.unwatched_nodes if n not in logs]
        ends = f"the log{'s' if len(logs) > 1 else ''} of {hostlist.compress(logs)} end{'' if len(logs) > 1 else 's'} before"
        parts = [f"nobody watched {hostlist.compress(nobody)} then"] if nobody else []
        return " and ".join([*parts, ends] if logs else parts)

    @functools.cached_property
    def partly_watched_nodes(self) -> tuple[str, ...]:
        """Nodes that were not watched at its end, or without an agent and with a log that covers only part of its run."""
        unseen = self.case.by_log - self.case.by_whole_log | frozenset(self.unwatched_nodes)
        return tuple(n for n in self.attempt.nodes if n in unseen)

    @property
    def fully_watched(self) -> bool:
        """True when all its nodes were watched at its end, those without an agent by a log that covers its whole run."""
        return bool(self.attempt.nodes) and not self.partly_watched_nodes

    @functools.cached_property
    def log_was_read(self) -> bool:
        """True when the job's own side was seen: something was found in it, or an agent, which reads job logs, ran on a node."""
        last = self.case.watched
        agents = (n for n in self.attempt.nodes if n not in self.case.by_log)
        at_work = (
            n in self.watched_nodes or ((at := last.get(n)) is not None and at >= self.start_at)
            for n in agents
        )
        return bool(self.findings) or any(at_work)

    @functools.cached_property
    def hung(self) -> bool:
        """True when the job's own side tells of ranks that waited in vain."""
        outstanding = [
            f.event for f in self.findings if f.event.kind == "dump" and f.event.detail.get("outstanding")
        ]
        return bool(outstanding) or any(f.signature.onset for f in self.findings)

    @functools.cached_property
    def hung_since(self) -> datetime | None:
        """The instant since which the job had made no progress when it ended; None when it did, or when no evidence shows a hang."""
        stalls = [f.event for f in self.findings if f.event.kind == "rank_stall"]
        if not stalls:
            return self.onset_at if self.hung else None
        step_at = self.case.last_progress_at
        went_on = step_at is not None and step_at > max(e.at for e in stalls)
        return None if went_on else step_at or self.onset_at

    @functools.cached_property
    def log_stall(self) -> records.HealthEvent | None:
        """The finding that its log stood still until the end; None where there is none, or where the probe saw a later step."""
        found = [f.event for f in self.findings if f.event.kind == vocabulary.LOG_STALL]
        latest = max(found, key=onset.stalled_since, default=None)
        step_at = self.case.last_progress_at
        went_on = latest is not None and step_at is not None and step_at > onset.stalled_since(latest)
        return None if went_on else latest

    @functools.cached_property
    def stalled_at(self) -> datetime | None:
        """Since when it made no progress until it ended, by its ranks, its log or the collective they waited in; None where nothing shows it."""
        by_log = onset.stalled_since(self.log_stall) if self.log_stall is not None else None
        known = [at for at in (self.hung_since, by_log) if at is not None and at < self.end_at]
        return max(self.start_at, min(known)) if known else None

    @functools.cached_property
    def left_waiting(self) -> bool:
        """True when one rank of several raised an exception that nothing went on after: the others wait for it until somebody ends them."""
        several = len(self.attempt.nodes) > 1 or (self.attempt.n_gpus or 0) > 1
        return several and any(
            f.signature.role is findings.FindingRole.OWN
            and f.signature.cause == "user_error"
            and f.event.detail.get("first_cause") is True
            and f.event.detail.get("rank") is not None
            for f in self.findings
        )

    @functools.cached_property
    def lost_node(self) -> str | None:
        """The node whose silence ended the attempt: as Slurm names it, else the one whose agent fell silent, else as srun told
        the user; None when that is open."""
        if self.attempt.failed_node:
            return self.attempt.failed_node
        if len(self.attempt.nodes) == 1:
            return self.attempt.nodes[0]
        named = next((s.event.node for s in self.of("node_lost")), None)
        # Where a log ends says nothing of its node: a kernel that meets nothing writes nothing for hours.
        out_of_contact = [
            n
            for n in self.unwatched_nodes
            if n not in self.case.by_log and self.case.watched.get(n) is not None
        ]
        if named or len(out_of_contact) == 1:
            return named or out_of_contact[0]
        srun = {f.event.detail.get("host") for f in self.findings if f.event.kind == "slurm_node_fail"}
        named_by_srun = [node for node in self.attempt.nodes if node in srun]
        return named_by_srun[0] if len(named_by_srun) == 1 else None

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
