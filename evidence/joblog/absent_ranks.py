"""Which ranks never came to the collective that the others' watchdogs gave up: those of whom no line tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import JobFinding

_KINDS = frozenset({"watchdog_timeout", "watchdog_timeout_init"})
_LEAST_WAITING = 3
_SHARE = 8
"""Of so many ranks at most one may be absent: where more are, the log is more likely cut off or another rank's than complete."""

_MOST_NAMED = 8


def named(first: JobFinding, found: Sequence[JobFinding]) -> JobFinding:
    """`first` with the ranks that did not come, where it is a watchdog's timeout and every other rank tells of the same collective.

    A rank inside a collective tells of its own timeout; one that never entered it has none to tell of. The last rank's absence is not
    seen: nothing says how many there are.
    """
    if first.kind not in _KINDS or first.seq is None or "culprit_ranks" in first.detail:
        return first
    waiting = {f.rank for f in found if _in_the_same(f, first) and f.rank is not None}
    if len(waiting) < _LEAST_WAITING:
        return first
    size = max(waiting) + 1
    absent = sorted(set(range(size)) - waiting) if size <= len(waiting) + max(1, size // _SHARE) else []
    if not absent or any(f.rank in absent for f in found):
        return first
    names = ", ".join(map(str, absent[:_MOST_NAMED]))
    meaning = f"{first.meaning} Every rank but {names} tells of it."
    return replace(first, meaning=meaning, detail={**first.detail, "ranks": absent, "missing": True})


def _in_the_same(other: JobFinding, first: JobFinding) -> bool:
    of_all = {first.group, other.group} <= grammar.WHOLE and not other.detail.get("in_subgroup")
    same_op = None in (first.op, other.op) or first.op == other.op
    return other.kind in _KINDS and of_all and same_op and other.seq == first.seq
