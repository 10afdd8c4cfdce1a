"""Faults that last, whatever a log says afterwards: a failed machine, a lost node, a full disk. Only further work of the same process shows that it got over one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from probing_cluster.evidence.joblog.grammar import JobFinding
from probing_cluster.evidence.joblog.messages.devices import cuda

_NODE_FAILED = "slurm_node_fail"
_OF_FILES = frozenset({"disk_full", "filesystem_unreachable", "io_error", "stale_file_handle"})
_LASTING = cuda.ONLY_HARDWARE | _OF_FILES | {_NODE_FAILED}
_SEVERAL = 3
_LATE_LINES = 800
"""A message of several lines is held later than others, but never by so many lines."""


def refutable(held: Sequence[JobFinding], first: int, last: int, *, restarted: bool) -> list[int]:
    """The findings in the lines `first` to `last` that words can refute, with the reasons above them that were looked up for the first one.

    `restarted`: the next start of the job stands below, which makes up for a lost node.
    """
    near = takewhile(lambda i: held[i].line >= first - _LATE_LINES, reversed(range(len(held))))
    found = sorted(i for i in near if first <= held[i].line <= last)
    while found and found[0] and {"farewell", "last_word"} & held[found[0] - 1].detail.keys():
        found.insert(0, found[0] - 1)
    return [i for i in found if not lasts(held[i]) or (restarted and held[i].kind == _NODE_FAILED)]


def lasts(finding: JobFinding) -> bool:
    """Whether only further work of the same process shows that it got over the fault."""
    return finding.kind in _LASTING or finding.domains == ("hardware",)


def units_needed(finding: JobFinding) -> float:
    """How many further units of work that end well show that the program got over the fault. Those on other GPUs show nothing of one; all use the same files."""
    return _SEVERAL if finding.kind in _OF_FILES else math.inf if lasts(finding) else 0


def is_soon_handled(finding: JobFinding) -> bool:
    """Whether the program's own report that it goes on after `finding`, with little further work, shows that it got over it."""
    return bool(finding.detail.get("handled")) and not lasts(finding)
