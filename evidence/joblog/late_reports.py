"""Reports that come after the failure which they explain, or which explains them: Slurm's of memory, and those of ranks that had waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from probing_cluster.evidence.joblog import grammar, precedence
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole

_OF_ABORT = frozenset({"cuda_launch_failure", "cuda_error", "cuda_unknown_error"})
"""What a rank whose collective was aborted may report of its GPU."""

_BOX_LINES = 6
"""From one rank's end to the next in the list of MPI's launcher."""


def replaces(new: JobFinding, best: JobFinding | None, held: Sequence[JobFinding]) -> bool:
    """Whether `new`, printed after `best` and all of `held`, is the cause."""
    if best is None:
        return precedence.outranks(new, best)
    if best.detail.get("perhaps") and (killed := next(filter(_is_killed, reversed(held[:-1])), None)):
        best = killed  # the note only explains that end: an error of a program's own outranks both
    # The program's own exception below the watcher's statement only passes it on.
    own = best.kind == "python_exception" and best.domains == grammar.USER
    if new.detail.get("watcher") and new.line < best.line and own:
        return True
    if _killed_before(new, best, held) or _crashed_among_killed(new, best, held):
        return True
    return precedence.outranks(new, best) and not _timed_out_before(new, best, held)


def confirmed(new: JobFinding, best: JobFinding | None) -> JobFinding:
    """`new`; as the reason if it notes that memory may have run out, and nothing worse is known than `best`, a process that was killed."""
    if new.detail.get("perhaps") is not True or best is None or not _is_killed(best):
        return new
    detail = {k: v for k, v in new.detail.items() if k != "survived"}
    return replace(new, role=LineRole.ROOT, detail=detail)


def _is_killed(finding: JobFinding) -> bool:
    return finding.kind == "oom_kill_suspected" and not finding.detail.get("survived")


def _killed_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether Slurm's late report of a kill for memory explains a process that was killed before `best`: the next command lacked its output."""
    if new.kind != "slurm_oom" or new.detail.get("perhaps"):
        return False
    if best.kind == new.kind or best.role is not LineRole.ROOT:
        return False
    return any(f.line < best.line for f in held if _is_killed(f))


def _crashed_among_killed(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether `new` crashed and `best` was killed in the same list of Intel MPI's launcher, which goes from rank to rank: it kills the others.

    A rank that is listed again, or after others that are not, was one of another run.
    """
    if (
        best.kind != "oom_kill_suspected"
        or new.kind not in precedence.CRASHES
        or not new.detail.get("listed")
    ):
        return False
    listed = [f for f in held if f.line >= best.line]
    if not all(f.detail.get("listed") and f.rank is not None for f in listed):
        return False
    return all(b.line - a.line <= _BOX_LINES and b.rank == (a.rank or 0) + 1 for a, b in pairwise(listed))


def _timed_out_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether the rank that failed in `new` had itself timed out after `best`, the network's own error: it waited, and its failure came of the abort."""
    if best.kind not in precedence.PEER_NOISE or new.rank is None or new.kind not in _OF_ABORT:
        return False
    waited = (f for f in held if f.kind in grammar.TIMEOUT_KINDS and f.rank == new.rank)
    return any(best.line < f.line < new.line for f in waited)
