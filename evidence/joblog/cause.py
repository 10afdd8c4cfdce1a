"""Which finding began the failure, decided while the log streams by.

The rules, in order of strength: an earlier initiating failure is never replaced by what follows from it;
a peer that went away and a bad exit give way to a failure that explains itself, whenever it is printed;
what Slurm reports long after the event (memory, lost nodes) and what only hardware can say gives the
cause even behind a timeout; Slurm's own endings count from where they are printed.
"""

from __future__ import annotations

from dataclasses import replace

from probing_cluster.evidence.joblog.grammar import JobFinding, Role

_FORCED_ENDS = frozenset({"slurm_timeout", "slurm_preempted", "slurm_requeued"})
_FILLED = ("op", "seq", "group", "rank", "timeout_ms", "host", "pid")
_SAME = {"watchdog_timeout_init": "watchdog_timeout", "host_oom_kill": "slurm_oom"}


def outranks(new: JobFinding, best: JobFinding | None) -> bool:
    """Whether `new`, printed after `best`, is nevertheless the cause."""
    if new.role is Role.OBSERVATION:
        return False
    if best is None:
        return True
    weak = best.role in (Role.EXIT, Role.REMOTE)
    if new.role is Role.ROOT:
        plain_cancel = best.kind == "slurm_cancelled"
        return weak or (new.late and (best.role is Role.SYMPTOM or plain_cancel))
    return weak and new.kind in _FORCED_ENDS


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

    def add(self, finding: JobFinding) -> None:
        """Hold `finding`; it may become the first cause or complete it."""
        self.held.append(finding)
        if self.settled:
            return
        best = self.held[self.best] if self.best is not None else None
        if outranks(finding, best):
            self.best = len(self.held) - 1
            for earlier in self.held[:-1]:
                self.held[self.best] = enrich(self.held[self.best], earlier)
        elif self.best is not None:
            self.held[self.best] = enrich(self.held[self.best], finding)

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
