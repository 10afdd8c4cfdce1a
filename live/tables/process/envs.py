"""`process.envs`: the environment with which each rank was started."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.core import sanitize
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table

MAX_BYTES = 1 << 20


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per variable."""
    for process in view.living:
        try:
            with (view.proc / str(process.pid) / "environ").open("rb") as file:
                raw = file.read(MAX_BYTES)
        except OSError as exc:
            view.miss(f"environment of pid {process.pid}: {exc.strerror}", rank=process.rank)
            continue
        for word in raw.split(b"\0"):
            name, equals, value = word.decode("utf-8", "replace").partition("=")
            if equals:
                yield {
                    **view.place(process),
                    "name": sanitize.clean(name, 300),
                    "value": sanitize.clean(value),
                }


TABLE = Table(
    schema="process",
    name="envs",
    meaning="Environment variables of every rank, as it was started.",
    source="/proc",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="name", kind="text", meaning="the variable"),
        Column(name="value", kind="text", meaning="its value, 4,096 characters"),
    ),
)
