"""Stacks of the job's own processes by py-spy, as their owner: read from outside, no signal, no stop."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from probing_cluster.core import sanitize
from probing_cluster.live.node import view as node_view
from probing_cluster.probe_agent.stacks import pyspy_program

AT_ONCE = 4
"""py-spies that run side by side."""
MAX_FRAMES = 200
MAX_THREADS = 256
Thread = Mapping[str, Any]


def dumps(
    view: node_view.NodeView, *, local_variables: bool = False
) -> Iterator[tuple[node_view.RankProcess, list[Thread] | None, str]]:
    """(process, its threads as py-spy prints them or None, why there are none) of every living rank."""
    tool = pyspy_program.program()
    waiting = list(view.living)
    started: list[tuple[node_view.RankProcess, subprocess.Popen[bytes]]] = []
    while waiting or started:
        while waiting and len(started) < AT_ONCE:
            process = waiting.pop(0)
            if tool is None:
                yield process, None, "py-spy is not installed on this node"
                continue
            argv = [tool, "dump", "--json", "--nonblocking", "--pid", str(process.pid)]
            argv += ["--locals"] if local_variables else []
            started.append((process, _start(argv)))
        if started:
            process, child = started.pop(0)
            yield process, *_threads(child, view.left_s())


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin"},
    )


def _threads(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[list[Thread] | None, str]:
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return None, "py-spy gave no answer before the deadline"
    if child.returncode != 0:
        return None, sanitize.clean(err.decode("utf-8", "replace").strip(), 200) or "py-spy failed"
    try:
        found: list[Thread] = [t for t in json.loads(out) if isinstance(t, dict)]
    except (ValueError, TypeError):
        return None, "py-spy's answer is no JSON"
    return found[:MAX_THREADS], ""


def frames(thread: Thread) -> Iterable[Mapping[str, Any]]:
    """Its Python frames, innermost first."""
    return [f for f in thread.get("frames") or () if isinstance(f, dict)][:MAX_FRAMES]


def is_main(process: node_view.RankProcess, thread: Thread) -> bool:
    """Whether it is the process's main thread, inside a PID namespace of its own, too."""
    return thread.get("os_thread_id") in (process.pid, process.page.pid_inside)
