"""What the probe traced of sampled steps, where the job is started with PROBING_TRACE: rings beside those of the program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probing_cluster.live.node import rings
from probing_cluster.live.node import view as node_view

OFF = "not traced: start the job with PROBING_TRACE=0.02 (a share of its steps) in its environment"


def rows(view: node_view.NodeView, name: str) -> Iterator[dict[str, Any]]:
    """The rows of one of the probe's own rings by column; a process without it is missing."""
    traced: set[tuple[int | None, int]] = set()
    for table, place in rings.of_job(view, {name}):
        traced.add((place["rank"], place["pid"]))
        values = [column.values for column in table.columns]
        names = [column.name for column in table.columns]
        for at_ns, *row in zip(table.times_ns, *values, strict=True):
            yield {**place, "at": at_ns, **dict(zip(names, row, strict=True))}
    for process in view.ranks:
        if (process.rank, process.pid) not in traced:
            view.miss(OFF, rank=process.rank)
