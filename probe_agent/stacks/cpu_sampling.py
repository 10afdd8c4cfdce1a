"""What a rank that holds the GIL is busy with: Python code, or C code that does not come back.

Two stacks of the same thread some time apart, and in between where the kernel saw it spend its CPU (perf_child). Neither
stops the process. Where the kernel does not let us count, more stacks are taken: Python code moves from line to line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import processes, sanitize
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.stacks import pyspy

DEADLINE_S = 10.0
MORE_STACKS = 5
"""Without counters: a loop of two lines is caught on the same one by as many stacks in one of 32 cases."""
_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.stacks.perf_child")
_COUNTED = ("samples", "evaluating", "interpreter", "elsewhere", "unknown")


async def look(
    children: children.Children,
    pid: int,
    owner: tuple[int, int],
    first: Mapping[str, Any],
    *,
    inside: int | None = None,
) -> dict[str, Any]:
    """`{"holds_gil", "moved", "ran"}` of the main thread whose first stack is `first`; `ran_error`: why nothing was counted.

    `holds_gil`: in both stacks; `moved`: its Python frames have changed; `ran`: see perf_child.
    """
    sample: dict[str, Any] = {}
    counted = await _counted(children, pid, owner)
    if isinstance(counted, str):
        sample["ran_error"] = counted
    else:
        sample["ran"] = counted
    later: Mapping[str, Any] = {}
    for _ in range(MORE_STACKS if isinstance(counted, str) else 1):
        later = await pyspy.stacks(children, pid, owner[0], inside=inside)
        if later.get("stack") != first.get("stack"):
            break
    # A stack that could not be taken is neither progress nor proof that the GIL is still held.
    sample["moved"] = bool(later.get("stack")) and later["stack"] != first.get("stack")
    sample["holds_gil"] = bool(later.get("holds_gil")) if "stack" in later else None
    return sample


async def _counted(started: children.Children, pid: int, owner: tuple[int, int]) -> dict[str, Any] | str:
    if not started.may_start("perf", owner[0]):
        return "earlier readers of this user's processes are stuck in the kernel"
    request = {"tid": pid, "uid": owner[0], "gid": owner[1]}
    try:
        done = await started.run(
            f"perf {owner[0]} {pid}", _CHILD, deadline_s=DEADLINE_S, stdin=json.dumps(request).encode()
        )
        reply = children.answer_of(done.stdout)
        if "refused" in reply:
            return sanitize.clean(str(reply["refused"]), 200)
        found: dict[str, Any] = {name: int(reply[name]) for name in _COUNTED}
        return found | {"where": sanitize.clean(str(reply["where"]), 100)}
    except (processes.ChildFailed, ValueError, KeyError, TypeError, OverflowError) as exc:
        return sanitize.clean(f"{type(exc).__name__}: {exc}", 200)
