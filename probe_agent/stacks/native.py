"""C functions inside the ranks' innermost Python frames, by native_child: one child for all ranks of a job on this node."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import processes, sanitize
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.stacks import unwind

DEADLINE_S = 12.0
_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.stacks.native_child")


async def look(
    started: children.Children, ranks: Mapping[int, int | None], owner: tuple[int, int]
) -> dict[int, dict[str, Any]]:
    """By pid `{"native": frames innermost first}` of the main thread, `native_error` why not or not all the way.

    `ranks`: pid to how often its main thread had gone to sleep before its Python stack was taken, None of one
    that stands still. Frames are `{"function", "file", "line": 0}`, and `"scanned": True` where the stack was searched.
    """
    if not ranks:
        return {}
    request = {"ranks": list(ranks.items()), "uid": owner[0], "gid": owner[1]}
    try:
        done = await started.run(
            f"native {owner[0]}", _CHILD, deadline_s=DEADLINE_S, stdin=json.dumps(request).encode()
        )
        reply = children.answer_of(done.stdout)
        return {pid: _entry(reply[str(pid)]) for pid in ranks}
    except (processes.ChildFailed, ValueError, KeyError, TypeError, AttributeError) as exc:
        why = sanitize.clean(f"{type(exc).__name__}: {exc}", 200)
        return {pid: {"native_error": why} for pid in ranks}


def _entry(raw: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "native" in raw:
        found["native"] = [_frame(f) for f in raw["native"][: unwind.MAX_FRAMES]]
    if "native_error" in raw:
        found["native_error"] = sanitize.clean(str(raw["native_error"]), 200)
    return found


def _frame(raw: Mapping[str, Any]) -> dict[str, Any]:
    function, file = sanitize.clean(str(raw["function"]), 200), sanitize.clean(str(raw["file"]), 100)
    found: dict[str, Any] = {"function": function, "file": file, "line": 0}
    return found | {"scanned": True} if raw.get("scanned") is True else found
