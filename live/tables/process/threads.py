"""`process.threads`: every thread of every rank, as the kernel has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.core import sanitize
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table

MAX_THREADS = 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def thread(home: Path) -> Row | None:
    """One thread's row from its directory in /proc; None when it has just ended."""
    try:
        raw = (home / "stat").read_bytes()
        wchan = (home / "wchan").read_bytes()
    except OSError:
        return None
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    if len(fields) < 37:
        return None
    return {
        "thread": int(home.name),
        "name": sanitize.clean(head.partition(b"(")[2].decode("utf-8", "replace"), 64),
        "state": fields[0].decode("ascii", "replace"),
        "user_s": int(fields[11]) / _TICKS_PER_S,
        "system_s": int(fields[12]) / _TICKS_PER_S,
        "cpu": int(fields[36]),
        "wchan": wchan.decode("ascii", "replace").strip("0\n ") or None,
    }


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per thread."""
    for process in view.living:
        try:
            homes = sorted((view.proc / str(process.pid) / "task").iterdir(), key=lambda h: int(h.name))
        except OSError as exc:
            view.miss(f"threads of pid {process.pid}: {exc.strerror}", rank=process.rank)
            continue
        for home in homes[:MAX_THREADS]:
            found = thread(home)
            if found is not None:
                yield {**view.place(process), "main": found["thread"] == process.pid, **found}


TABLE = Table(
    schema="process",
    name="threads",
    meaning="Every thread of every rank.",
    source="/proc",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="thread", kind="int", meaning="the kernel's number of the thread"),
        Column(name="main", kind="bool", meaning="it is the main thread"),
        Column(name="name", kind="text", meaning="the kernel's name of it, 15 characters"),
        Column(name="state", kind="text", meaning="R, S, D, T, Z as the kernel has it"),
        Column(name="user_s", kind="float", meaning="processor time in the program, seconds"),
        Column(name="system_s", kind="float", meaning="processor time in the kernel, seconds"),
        Column(name="cpu", kind="int", meaning="processor it ran on last"),
        Column(name="wchan", kind="text", meaning="kernel function in which it sleeps"),
    ),
)
