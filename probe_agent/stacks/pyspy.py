"""Stacks from outside the process by py-spy: no signal, no stop, also with the GIL held or the process stopped.

`--nonblocking` reads memory while the process runs: it never stops a user's process, at the price
that a stack may rarely be torn; then it is asked once more.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from probing_cluster.core import processes, sanitize
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.stacks import pyspy_program

DEADLINE_S = 10.0
MAX_FRAMES = 100
MAX_THREADS = 32
MAX_CHARS = 65_536
"""Most characters of one process's frames; of more, the last threads are left out. Its user chooses how many there are and how they are called."""
_FRAME_CHARS = 48
"""What JSON adds to the words of a frame."""


async def stacks(
    started: children.Children, pid: int, uid: int, *, inside: int | None = None, command: str | None = None
) -> dict[str, Any]:
    """`{"stack": frames of the main thread, "other_stacks": …, "holds_gil": …, "gil_stack": …}`; `{"stack_error": why}` without one.

    Frames are innermost first: `{"function", "file", "line"}`. `uid` is the process's: its memory may lie on a file system of that
    user's that never answers, and py-spy then hangs in the kernel. `inside` is the process's number in its own PID
    namespace, by which Python knows its threads there.
    """
    tool = command or pyspy_program.program()
    if tool is None:
        return {"stack_error": "py-spy is not installed on this node"}
    argv = (tool, "dump", "--json", "--nonblocking", "--pid", str(int(pid)))
    if not started.may_start("py-spy", uid):
        return {"stack_error": "earlier readers of this user's processes are stuck in the kernel"}
    why = ""
    for _ in range(2):
        try:
            done = await started.run(f"py-spy {uid} {pid}", argv, deadline_s=DEADLINE_S)
        except processes.ChildFailed as exc:
            return {"stack_error": str(exc)}
        if done.returncode == 0:
            try:
                return _answer(json.loads(done.stdout), {pid, inside or pid})
            except (ValueError, TypeError, AttributeError, LookupError) as exc:
                why = f"py-spy answered {type(exc).__name__}"
        else:
            why = sanitize.clean(done.stderr.decode("utf-8", "replace"), 200)
    return {"stack_error": why}


def _answer(threads: Sequence[Mapping[str, Any]], pids: Container[object]) -> dict[str, Any]:
    main = next((t for t in threads if t.get("os_thread_id") in pids), threads[0])
    others = [t for t in threads if t is not main][:MAX_THREADS]
    holder = next((t for t in threads if t.get("owns_gil")), None)
    stack, other_stacks = _frames(main), list[list[dict[str, Any]]]()
    left = MAX_CHARS - _n_chars(stack)
    for thread in others:
        frames = _frames(thread)
        left -= _n_chars(frames)
        if left < 0:
            break
        other_stacks.append(frames)
    return {
        "stack": stack,
        "holds_gil": bool(main.get("owns_gil")),
        "gil_elsewhere": any(t.get("owns_gil") for t in others),
        "gil_stack": _frames(holder) if holder is not None else [],
        "other_stacks": other_stacks,
    }


def _n_chars(frames: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(f["function"]) + len(f["file"]) + _FRAME_CHARS for f in frames)


def _frames(thread: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "function": sanitize.clean(str(f.get("name", "")), 200),
            "file": sanitize.clean(str(f.get("filename") or f.get("short_filename") or ""), 300),
            "line": int(f.get("line") or 0),
        }
        for f in list(thread.get("frames") or ())[:MAX_FRAMES]
    ]
