"""Reports that come after the failure which they explain, or which explains them: Slurm's of memory, and those of ranks that had waited."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from probing_cluster.core import digits
from probing_cluster.evidence.joblog import grammar, labels, precedence, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole

_OF_ABORT = frozenset({"cuda_launch_failure", "cuda_error", "cuda_unknown_error"})
"""What a rank whose collective was aborted may report of its GPU."""

_TASKS = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")
_WAIT_LINES = 36
_BOX_LINES = 8
"""From one rank's end to the next in the list of MPI's launcher."""


def replaces(new: JobFinding, best: JobFinding | None, held: Sequence[JobFinding]) -> bool:
    """Whether `new`, printed after `best` and all of `held`, is the cause."""
    if best is None:
        return precedence.outranks(new, best)
    if best.detail.get("perhaps") and (killed := next(filter(_is_killed, reversed(held[:-1])), None)):
        best = killed  # the note only explains that end: an error of a program's own outranks both
    # The program's own exception below the watcher's statement only passes it on.
    if new.detail.get("watcher") and new.line < best.line and best.domains == grammar.USER:
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
    """Whether `new` crashed and `best` was killed in the same list of Intel MPI's launcher, which is in the order of ranks: it kills the others."""
    if (
        best.kind != "oom_kill_suspected"
        or new.kind not in precedence.CRASHES
        or not new.detail.get("listed")
    ):
        return False
    listed = [f for f in held if f.line >= best.line]
    near = all(b.line - a.line <= _BOX_LINES for a, b in pairwise(listed))
    return near and all(f.detail.get("listed") for f in listed)


def _timed_out_before(new: JobFinding, best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether the rank that failed in `new` had itself timed out after `best`, the network's own error: it waited, and its failure came of the abort."""
    if best.kind not in precedence.PEER_NOISE or new.rank is None or new.kind not in _OF_ABORT:
        return False
    waited = (f for f in held if f.kind in grammar.TIMEOUT_KINDS and f.rank == new.rank)
    return any(best.line < f.line < new.line for f in waited)


def awaited(best: JobFinding, held: Sequence[JobFinding], behind: Callable[[int], list[str]]) -> int | None:
    """Index in `held` of the exit of the one task that the others of its step waited for until the time limit `best`, or of the reason above it; None without one.

    Slurm names all the others as ended by it. They had printed something since, and no progress. `behind`: the last lines of the log after a line.
    """
    if best.kind != "slurm_timeout" or held[-1].line - best.line > _BOX_LINES:
        return None
    ended = [str(f.detail["tasks"]) for f in held if f.line > best.line and "tasks" in f.detail]
    for i, left in enumerate(held):
        task = str(left.detail.get("tasks", ""))
        by_srun = left.kind == "task_exit" and left.message.startswith("srun: ")
        if not by_srun or not digits.is_number(task) or held[-1].line - left.line > _WAIT_LINES:
            continue
        others = [labels.bare(0, line) for line in behind(left.line) if "slurmstepd: " not in line]
        waited = any(other.labelled and other.rank != left.rank for other in others)
        since = progress.LogProgress()
        worked = any(since.after_line(other.text) for other in others)
        if left.line < best.line and ended and waited and not worked and not _holds(ended, int(task)):
            named = i > 0 and held[i - 1].detail.get("last_word") and held[i - 1].rank in (None, left.rank)
            return i - 1 if named else i
    return None


def _holds(lists: Sequence[str], task: int) -> bool:
    """Whether Slurm's `lists` of tasks (`0-3,7`) hold `task`."""
    parts = (found for tasks in lists for found in _TASKS.finditer(tasks))
    return any(int(part["first"]) <= task <= int(part["last"] or part["first"]) for part in parts)
