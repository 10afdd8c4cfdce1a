"""`cpu.samples`: how busy each processor of the node is, over a tenth of a second that begins with the question."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from probing_cluster.core import digits
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Row, Scan, Table

OVER_S = 0.1
Counts = Mapping[int, tuple[int, ...]]


def counts(proc: Path) -> Counts:
    """Clock ticks of each processor: user, nice, system, idle, iowait, irq, softirq, steal."""
    lines = (line.split() for line in (proc / "stat").read_text("ascii", "replace").splitlines())
    return {
        int(words[0][3:]): tuple(map(int, words[1:9]))
        for words in lines
        if words and words[0].startswith("cpu") and digits.is_number(words[0][3:])
    }


def shares(cpu: int, first: tuple[int, ...], last: tuple[int, ...]) -> Row:
    """One processor's row without its place; the time between must not be nothing."""
    moved = [max(0, b - a) for a, b in zip(first, last, strict=True)]
    total = sum(moved) or 1
    user, nice, system, idle, iowait, irq, softirq, steal = (m / total for m in moved)
    return {
        "cpu": cpu,
        "busy_frac": 1 - idle - iowait,
        "user_frac": user + nice,
        "system_frac": system + irq + softirq,
        "iowait_frac": iowait,
        "steal_frac": steal,
    }


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per processor."""
    first, began_s = counts(view.proc), time.monotonic()
    time.sleep(min(OVER_S, view.left_s() / 4))
    last, over_s = counts(view.proc), time.monotonic() - began_s
    for cpu in sorted(first.keys() & last.keys()):
        yield {**view.node_place(), "over_s": over_s, **shares(cpu, first[cpu], last[cpu])}


TABLE = Table(
    schema="cpu",
    name="samples",
    meaning="How busy each processor of the node is now (all jobs on it).",
    source="/proc/stat, twice",
    rows=rows,
    columns=(
        *NODE_PLACE,
        Column(name="cpu", kind="int", meaning="number of the processor"),
        Column(name="over_s", kind="float", meaning="seconds between the two readings"),
        Column(name="busy_frac", kind="float", meaning="share of them not idle, 0..1"),
        Column(name="user_frac", kind="float", meaning="in programs"),
        Column(name="system_frac", kind="float", meaning="in the kernel"),
        Column(name="iowait_frac", kind="float", meaning="idle, while something waited for storage"),
        Column(name="steal_frac", kind="float", meaning="taken by other virtual machines"),
    ),
)
