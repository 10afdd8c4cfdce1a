"""`python.tables`: the tables that the job's own program writes (`probing_tables`), and how much of each is kept."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import rings
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table
from probing_cluster.probe_agent.ranks import ring


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per table and process."""
    for found, place in rings.of_job(view):
        if found.name in ring.TRACED:
            continue
        yield {
            **place,
            "at": view.at_ns,
            "name": found.name,
            "columns": ", ".join(f"{c.name} {c.type}" for c in found.columns),
            "rows": len(found.times_ns),
            "appended": found.appended,
            "dropped": found.dropped,
            "unfit": found.unfit,
        }


TABLE = Table(
    schema="python",
    name="tables",
    meaning="The tables of the job's own program, one row per table and process.",
    source="the rings of `probing_tables` in the job's directory",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="name", kind="text", meaning="the table: `SELECT … FROM python.<name>`"),
        Column(name="columns", kind="text", meaning="its columns and their types"),
        Column(name="rows", kind="int", meaning="rows that can be read now"),
        Column(name="appended", kind="int", meaning="rows that the process has appended"),
        Column(name="dropped", kind="int", meaning="older rows, overwritten by later ones"),
        Column(name="unfit", kind="int", meaning="values that did not fit their column and are null"),
    ),
)
