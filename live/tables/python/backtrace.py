"""`python.backtrace`: Python and C frames of every thread of every rank."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.live import conditions
from probing_cluster.live.node import stacks
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Missing, Row, Scan, Table
from probing_cluster.probe_agent.stacks import sleeps

_NATIVE = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.stacks.native_child")
_C_ROW = {"kind": ("c",), "depth": range(-100, 0), "main": (True,)}


def rows(view: node_view.NodeView, scan: Scan) -> Iterator[Row]:
    """One per frame; what py-spy may not read as the owner, the node's agent is asked for."""
    slept = {p.pid: sleeps.read(p.pid, view.proc) for p in view.living}
    refused: list[tuple[node_view.RankProcess, str]] = []
    read: list[node_view.RankProcess] = []
    for process, threads, why in stacks.dumps(view):
        if threads is None:
            refused.append((process, why))
            continue
        read.append(process)
        for thread in threads:
            yield from _python(view, process, thread)
    if refused:
        yield from _of_agent(view, refused)
    if read and _wants_c(scan):
        yield from _native(view, read, slept)


def _python(view: node_view.NodeView, process: node_view.RankProcess, thread: stacks.Thread) -> Iterator[Row]:
    for depth, frame in enumerate(stacks.frames(thread)):
        yield {
            **view.place(process),
            "thread": thread.get("os_thread_id"),
            "thread_name": sanitize.clean(str(thread.get("thread_name") or ""), 100) or None,
            "main": stacks.is_main(process, thread),
            "holds_gil": bool(thread.get("owns_gil")),
            "active": bool(thread.get("active")),
            "kind": "python",
            "depth": depth,
            **_where(frame),
        }


def _where(frame: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "function": sanitize.clean(str(frame.get("name") or frame.get("function") or ""), 300),
        "file": sanitize.clean(str(frame.get("filename") or frame.get("file") or ""), 500),
        "line": int(frame.get("line") or 0) or None,
    }


def _wants_c(scan: Scan) -> bool:
    """Whether the statement can use C frames at all: they cost the most."""
    return conditions.may_hold(scan.condition, _C_ROW)


def _native(
    view: node_view.NodeView, read: Sequence[node_view.RankProcess], slept: Mapping[int, int | None]
) -> Iterator[Row]:
    """C functions inside the innermost Python frame of each main thread, which has not moved since py-spy read it."""
    ranks = [(p.pid, slept[p.pid]) for p in read if slept.get(p.pid) is not None]
    request = json.dumps({"ranks": ranks, "uid": view.uid, "gid": -1}).encode()
    try:
        done = subprocess.run(
            _NATIVE,
            input=request,
            capture_output=True,
            timeout=view.left_s(),
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
        reply = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        view.miss("C frames: no answer before the deadline")
        return
    for process in read:
        found = reply.get(str(process.pid)) or {}
        yield from _c_frames(view, process, found.get("native") or ())


def _c_frames(
    view: node_view.NodeView, process: node_view.RankProcess, native: Sequence[Mapping[str, Any]]
) -> Iterator[Row]:
    for i, frame in enumerate(native):
        yield {
            **view.place(process),
            "thread": process.pid,
            "main": True,
            "kind": "c",
            "depth": i - len(native),
            **_where(frame),
        }


def _of_agent(
    view: node_view.NodeView, refused: Sequence[tuple[node_view.RankProcess, str]]
) -> Iterator[Row]:
    try:
        answer = view.agent.ask("stacks", view.left_s(), pids=[p.pid for p, _ in refused])
    except Missing as exc:
        for process, why in refused:
            view.miss(f"no stack: {why}; {exc}", rank=process.rank)
        return
    for process, why in refused:
        entry = (answer.get("stacks") or {}).get(str(process.pid)) or {}
        if "stack" not in entry:
            view.miss(f"no stack: {entry.get('stack_error') or why}", rank=process.rank)
            continue
        threads = [entry["stack"], *(entry.get("other_stacks") or ())]
        for number, found in enumerate(threads):
            main = number == 0
            thread = {
                "os_thread_id": process.pid if main else None,
                "owns_gil": entry.get("holds_gil") if main else None,
                "frames": found,
            }
            yield from _python(view, process, thread)
        yield from _c_frames(view, process, entry.get("native") or ())


TABLE = Table(
    schema="python",
    name="backtrace",
    meaning="The stacks of all threads of all ranks, one row per frame.",
    source="py-spy as the owner, without stopping anything; where the node forbids that, its agent",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="thread", kind="int", meaning="the kernel's number of the thread"),
        Column(name="thread_name", kind="text", meaning="Python's name of it"),
        Column(name="main", kind="bool", meaning="it is the main thread"),
        Column(
            name="holds_gil", kind="bool", meaning="it holds the interpreter's lock; null where not known"
        ),
        Column(name="active", kind="bool", meaning="it runs, or wants to"),
        Column(name="kind", kind="text", meaning="python or c"),
        Column(
            name="depth",
            kind="int",
            meaning="0 is the innermost Python frame, its caller 1; C functions called from it are negative, the innermost least",
        ),
        Column(name="function", kind="text", meaning="name of the function"),
        Column(name="file", kind="text", meaning="its file, of a C function its library"),
        Column(name="line", kind="int", meaning="line it is at; null for C"),
    ),
)
