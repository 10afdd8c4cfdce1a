"""Which finding began the failure, decided while the log streams by.

The rules, in order of strength: an earlier initiating failure is never replaced by what follows from it;
a peer that went away and a bad exit give way to a failure that explains itself, whenever it is printed;
what Slurm reports long after the event (memory, lost nodes) and what only hardware can say gives the
cause even behind a timeout; Slurm's own endings count from where they are printed. An error behind which the
training went on was survived and caused nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import JobFinding, Role

_FORCED_ENDS = frozenset({"slurm_timeout", "slurm_preempted", "slurm_requeued"})
_FILLED = ("op", "seq", "group", "rank", "timeout_ms", "host", "pid")
_STEP = re.compile(
    r"\b(?:iteration|global_step|step|iter|batch)s?\b[\s=:#\[]{1,8}(?P<a>\d{1,9})\b|\|\s{0,3}(?P<b>\d{1,9})/\d{1,9} \[|'epoch': (?P<c>\d{1,6}\.\d+)",
    re.IGNORECASE,
)
_STEPS = 3
"""So many further steps say that the training went on."""
_BUFFERED_CHARS = 9_000
"""Steps of before the failure can stand this far behind it: error output is not buffered, standard output is, by 8 KiB."""
_DOUBT_CHARS = 262_144
"""Without further steps in so much text it did not go on."""
_CLOCKS_DIFFER_S = 60
_MAY_PASS = frozenset({"net_ib_error", "net_ib_async_event"})
"""Symptoms that a job can live through: a link that flaps, a device it goes without."""
_SAME = {"watchdog_timeout_init": "watchdog_timeout", "host_oom_kill": "slurm_oom"}


def is_step(text: str) -> bool:
    """Whether the line tells how far the training is."""
    return _STEP.search(text) is not None


def _clearly_before(new: JobFinding, best: JobFinding) -> bool:
    """Whether the clock of PyTorch's own lines puts `new` before `best`, although it is printed behind it.

    Launchers write what ranks say in the order it reaches them; a minute is more than clocks differ.
    """
    ours, theirs = new.detail.get("stamp"), best.detail.get("stamp")
    return bool(ours and theirs and ours[0] == theirs[0] and ours[1] + _CLOCKS_DIFFER_S <= theirs[1])


def outranks(new: JobFinding, best: JobFinding | None) -> bool:
    """Whether `new`, printed after `best`, is nevertheless the cause."""
    if new.role is Role.OBSERVATION:
        return False
    if best is None:
        return True
    weak = best.role in (Role.EXIT, Role.REMOTE)
    if new.role is best.role is Role.SYMPTOM:
        return _clearly_before(new, best)
    if new.role is Role.ROOT:
        plain_cancel = best.kind == "slurm_cancelled"
        return weak or (new.late and (best.role is Role.SYMPTOM or plain_cancel))
    return weak and new.kind in _FORCED_ENDS


def _can_be_survived(finding: JobFinding) -> bool:
    """Whether the training can go on behind it; what only hardware says, and what Slurm reports, is final."""
    return (finding.role is Role.ROOT and not finding.late) or finding.kind in _MAY_PASS


def enrich(best: JobFinding, other: JobFinding) -> JobFinding:
    """`best` with the fields it lacks, from another line about the same thing."""
    if _SAME.get(best.kind, best.kind) != _SAME.get(other.kind, other.kind):
        return best
    if best.rank is not None and other.rank is not None and best.rank != other.rank:
        return _sizes(best, other)
    if best.seq is not None and other.seq is not None and best.seq != other.seq:
        return best
    missing = {
        n: getattr(other, n) for n in _FILLED if getattr(best, n) is None and getattr(other, n) is not None
    }
    if (
        best.detail.get("timeout_is_default")
        and other.timeout_ms
        and not other.detail.get("timeout_is_default")
    ):
        missing["timeout_ms"] = other.timeout_ms
        missing["detail"] = {k: v for k, v in best.detail.items() if k != "timeout_is_default"}
    if other.detail.get("multicast") and not best.detail.get("multicast"):
        missing.update(domains=other.domains, meaning=other.meaning)
    if best.kind == "watchdog_timeout" and other.detail.get("completed") == -1 and best.seq == other.seq:
        missing.update(kind=other.kind, meaning=other.meaning)
    return replace(best, **missing) if missing else best


def _sizes(best: JobFinding, other: JobFinding) -> JobFinding:
    """Two ranks in the same collective with different sizes: the program's own mismatch."""
    same = best.seq is not None and (best.seq, best.op) == (other.seq, other.op)
    ours, theirs = best.detail.get("numel_in"), other.detail.get("numel_in")
    if not same or ours is None or theirs is None or ours == theirs or best.domains == ("user_program",):
        return best
    said = f"{best.meaning} Ranks {best.rank} and {other.rank} entered it with {ours} and {theirs} elements, so the program disagrees with itself."
    return replace(best, domains=("user_program",), meaning=said)


class Story:
    """The candidates seen so far and the best of them."""

    def __init__(self) -> None:
        self.best: int | None = None
        self.held: list[JobFinding] = []
        self.settled = False
        self._steps: set[str] = set()
        self._late_steps: set[str] = set()
        self._chars = 0

    def add(self, finding: JobFinding) -> None:
        """Hold `finding`; it may become the first cause or complete it."""
        if finding.role is Role.ROOT and self.in_doubt and len(self._steps) >= _STEPS:
            self._survived()
        self.held.append(finding)
        if self.settled:
            return
        best = self.held[self.best] if self.best is not None else None
        if outranks(finding, best):
            self.best = len(self.held) - 1
            self._steps, self._late_steps, self._chars = set(), set(), 0
            for earlier in self.held[:-1]:
                self.held[self.best] = enrich(self.held[self.best], earlier)
        elif self.best is not None:
            self.held[self.best] = enrich(self.held[self.best], finding)

    @property
    def in_doubt(self) -> bool:
        """True while further lines could show that the program lived on."""
        if self.best is None or self.settled or self._chars > _DOUBT_CHARS:
            return False
        return _can_be_survived(self.held[self.best])

    def passed(self, text: str) -> None:
        """A line behind a failure `in_doubt`: does the training go on?"""
        self._chars += len(text)
        if found := _STEP.search(text):
            step = found["a"] or found["b"] or found["c"]
            (self._late_steps if self._chars > _BUFFERED_CHARS else self._steps).add(step)
            if len(self._late_steps) >= _STEPS:
                self._survived()

    def _survived(self) -> None:
        """The program lived on: every failure so far caused nothing."""
        self.held = [
            replace(f, detail={**f.detail, "survived": True}) if _can_be_survived(f) else f for f in self.held
        ]
        self.best = None
        self._steps, self._late_steps, self._chars = set(), set(), 0

    def fill_rank(self, line: int, rank: int) -> None:
        """A launcher named the rank of the failure printed just before `line`."""
        if self.best is not None and not self.settled:
            best = self.held[self.best]
            if best.rank is None and 0 < line - best.line <= 3:
                self.held[self.best] = replace(best, rank=rank)

    def settle(self) -> list[JobFinding]:
        """Everything held, the first cause marked the first time."""
        if self.best is not None and not self.settled:
            self.held[self.best] = replace(self.held[self.best], first_cause=True)
        self.settled = True
        settled, self.held = self.held, []
        return settled
