"""`torch.checkpoints`: what each rank has written, and whether it writes now."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per rank that has begun a checkpoint."""
    for process in view.ranks:
        page = process.page
        begin, end = page.checkpoint_begin_ns, page.checkpoint_end_ns
        if begin is None:
            continue
        done = end is not None and end >= begin
        yield {
            **view.place(process),
            "checkpoints": page.checkpoints,
            "begin_at": int(page.realtime_s(begin) * 1e9),
            "end_at": int(page.realtime_s(end) * 1e9) if done and end is not None else None,
            "duration_s": (end - begin) / 1e9 if done and end is not None else None,
            "writing": process.alive and not done,
            "blocked_s": page.checkpoint_total_ns / 1e9,
        }


TABLE = Table(
    schema="torch",
    name="checkpoints",
    meaning="The last checkpoint that each rank wrote or writes.",
    source="the probe's page",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="checkpoints", kind="int", meaning="checkpoints written so far"),
        Column(name="begin_at", kind="time", meaning="when the last one began"),
        Column(name="end_at", kind="time", meaning="when it was written; null while it is not"),
        Column(name="duration_s", kind="float", meaning="seconds it took"),
        Column(name="writing", kind="bool", meaning="it is being written now"),
        Column(
            name="blocked_s", kind="float", meaning="seconds that all checkpoints have held the training up"
        ),
    ),
)
