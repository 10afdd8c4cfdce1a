"""Which finding a later one explains, by more than the two lines: by what else was found before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from probing_cluster.evidence.joblog import grammar, precedence
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole


def replaces(new: JobFinding, best: JobFinding | None, held: Sequence[JobFinding]) -> bool:
    """Whether `new`, printed after `best` and all of `held`, is the cause."""
    if best is None:
        return precedence.outranks(new, best)
    if killed_before(new, best, held):
        return True
    return precedence.outranks(new, best) and not timed_out_before(new, best, held)


def confirmed(new: JobFinding, held: Sequence[JobFinding]) -> JobFinding:
    """`new`; as the reason if it notes that memory may have run out, and a process had been killed."""
    killed = any(f.kind == "oom_kill_suspected" and not f.detail.get("survived") for f in held)
    return replace(new, role=LineRole.ROOT) if killed and new.detail.get("perhaps") else new


def killed_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether Slurm's late report of a kill for memory explains a process that was killed before `best`: the next command lacked its output."""
    if new.kind != "slurm_oom" or best.kind == new.kind or best.role is not LineRole.ROOT:
        return False
    killed = (f for f in held if f.kind == "oom_kill_suspected" and not f.detail.get("survived"))
    return any(f.line < best.line for f in killed)


def timed_out_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether the rank that failed in `new` had itself timed out after `best`, the network's own error: it waited, and its failure came of that."""
    if best.kind not in precedence.PEER_NOISE or new.rank is None:
        return False
    waited = (f for f in held if f.kind in grammar.TIMEOUT_KINDS and f.rank == new.rank)
    return any(best.line < f.line < new.line for f in waited)
