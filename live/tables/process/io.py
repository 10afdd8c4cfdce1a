"""`process.io`: what every rank has read and written."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.core import digits
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table

_FIELDS = {
    "rchar": ("read_chars", "bytes asked for by read calls, the page cache's included"),
    "wchar": ("write_chars", "bytes passed to write calls"),
    "syscr": ("read_calls", "read calls"),
    "syscw": ("write_calls", "write calls"),
    "read_bytes": ("read_bytes", "bytes that came from storage"),
    "write_bytes": ("write_bytes", "bytes that went to storage"),
}


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per rank that runs."""
    for process in view.living:
        try:
            text = (view.proc / str(process.pid) / "io").read_text("ascii", "replace")
        except OSError as exc:
            view.miss(f"counters of pid {process.pid}: {exc.strerror}", rank=process.rank)
            continue
        counted = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        found = {
            name: int(counted[key])
            for key, (name, _) in _FIELDS.items()
            if digits.is_number(counted.get(key, ""))
        }
        yield {**view.place(process), **found}


TABLE = Table(
    schema="process",
    name="io",
    meaning="What every rank has read and written since it started.",
    source="/proc",
    rows=rows,
    columns=(*PLACE, *(Column(name=n, kind="int", meaning=m) for n, m in _FIELDS.values())),
)
