"""`cluster.nodes`: every node of the job that answered."""

from __future__ import annotations

import os
from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import NODE_PLACE, Column, Missing, Row, Scan, Table


def _memory(text: str) -> dict[str, int]:
    lines = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines if len(words) == 3}


def _agent(view: node_view.NodeView) -> str:
    try:
        view.agent.ask("hello", min(1.0, view.left_s() / 2))
    except Missing as exc:
        return str(exc)
    return "answers"


def rows(view: node_view.NodeView, scan: Scan) -> Iterator[Row]:
    """One."""
    memory = _memory((view.proc / "meminfo").read_text("ascii", "replace"))
    wanted = scan.columns
    ranks = view.ranks
    yield {
        **view.node_place(),
        "ranks": sum(p.alive for p in ranks),
        "dead_ranks": sum(not p.alive for p in ranks),
        "agent": _agent(view) if wanted is None or "agent" in wanted else None,
        "cpus": os.cpu_count(),
        "load_1m": os.getloadavg()[0],
        "memory_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "uptime_s": float((view.proc / "uptime").read_text("ascii").split()[0]),
        "kernel": os.uname().release,
        "host": os.uname().nodename,
    }


TABLE = Table(
    schema="cluster",
    name="nodes",
    meaning="Every node of the job that answered; the others are in `cluster.missing`.",
    source="/proc, and whether the node's agent answers",
    rows=rows,
    columns=(
        *NODE_PLACE,
        Column(name="ranks", kind="int", meaning="ranks that run here"),
        Column(name="dead_ranks", kind="int", meaning="ranks that ended here"),
        Column(name="agent", kind="text", meaning="`answers`, or why the node's agent does not"),
        Column(name="cpus", kind="int", meaning="processors"),
        Column(name="load_1m", kind="float", meaning="load average of a minute"),
        Column(name="memory_bytes", kind="int", meaning="memory"),
        Column(name="memory_available_bytes", kind="int", meaning="of which available"),
        Column(name="uptime_s", kind="float", meaning="seconds since it booted"),
        Column(name="kernel", kind="text", meaning="release of the kernel"),
        Column(name="host", kind="text", meaning="host name"),
    ),
)
