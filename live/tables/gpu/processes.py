"""`gpu.processes`: which process holds how much memory on which of the job's GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per process and GPU."""
    gpus = view.agent.ask("gpus", view.left_s())["gpus"]
    rank_of = {p.pid: p.rank for p in view.ranks}
    for gpu in gpus:
        for process in gpu.get("processes") or ():
            pid = process.get("pid")
            yield {
                "node": view.node,
                "rank": rank_of.get(pid),
                "pid": pid,
                "at": view.at_ns,
                "index": gpu.get("index"),
                "uuid": gpu.get("uuid"),
                "used_bytes": process.get("used_bytes"),
            }


TABLE = Table(
    schema="gpu",
    name="processes",
    meaning="Compute processes on the job's GPUs; one without a rank is a stranger, or a leftover.",
    source="the node's agent, which asks NVML",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="index", kind="int", meaning="NVML's number of the GPU"),
        Column(name="uuid", kind="text", meaning="its UUID"),
        Column(
            name="used_bytes",
            kind="int",
            meaning="memory that the process holds there; null where NVML does not tell",
        ),
    ),
)
