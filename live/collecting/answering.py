"""One table asked for by one question: in a process of its own, since what it reads may hang, raise or be hostile."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from probing_cluster.core import errors
from probing_cluster.live import conditions, packing
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import Columns, Missing, Row, Scan, Table, columns_of
from probing_cluster.live.tables import registry

MAX_ROWS = 1_000_000
"""Of one table on one node; more are cut, and it is reported."""


def answer(view: node_view.NodeView, scan: Scan) -> bytes:
    """The frame with the rows of one scan (see packing); what cannot be had is in its `missing`, nothing is raised."""
    columns = Columns(names=(), kinds=(), values=())
    try:
        columns = rows_of(view, scan)
    except Missing as exc:
        view.miss(str(exc), rank=exc.rank)
    except errors.ProbingError as exc:
        view.miss(str(exc))
    except Exception as exc:  # noqa: BLE001 - a plugin's or a table's fault is a row, never the end of the others
        view.miss(f"{type(exc).__name__}: {exc}"[:300])
    return frame(view, scan, columns)


def frame(view: node_view.NodeView, scan: Scan, columns: Columns) -> bytes:
    """Rows and what is missing as bytes."""
    header: dict[str, Any] = {"node": view.node, "table": scan.table, "missing": view.missing}
    if "ranks" in vars(view):  # the pages were read
        header["ranks"] = sorted({p.rank for p in view.ranks if p.rank is not None})
        header["world_size"] = max((p.page.world_size or 0 for p in view.ranks), default=0)
    return packing.pack(header, columns)


def rows_of(view: node_view.NodeView, scan: Scan) -> Columns:
    """The rows that fulfil the scan's condition; raises Missing, and whatever a table raises."""
    found = registry.find(scan.table)
    name = scan.table.partition(".")[2]
    if isinstance(found, Table):
        return _described(found) if scan.describe else _of_table(view, found, scan)
    resolved = found.resolve(view, name, scan) if found is not None else None
    if resolved is None:
        raise Missing(f"no table {scan.table} here")
    return _cut(view, _filtered(resolved, scan), scan) if resolved.whole else resolved


def _described(table: Table) -> Columns:
    kinds = tuple(c.kind for c in table.columns)
    return Columns(
        names=tuple(c.name for c in table.columns), kinds=kinds, values=tuple([] for _ in kinds), whole=False
    )


def _of_table(view: node_view.NodeView, table: Table, scan: Scan) -> Columns:
    wanted = scan.columns
    chosen = [c for c in table.columns if wanted is None or c.name in wanted]
    needed = conditions.decider(scan.condition)
    rows: Iterable[Row] = (row for row in table.rows(view, scan) if needed(row))
    most = MAX_ROWS if scan.limit is None else min(scan.limit, MAX_ROWS)
    kept = list(itertools.islice(rows, most + 1))
    if len(kept) > most and most == MAX_ROWS:
        view.miss(f"more than {MAX_ROWS} rows: the others are left out")
    return columns_of(kept[:most], chosen)


def _filtered(columns: Columns, scan: Scan) -> Columns:
    """Rows that came as columns, by the scan's condition, columns and limit."""
    keep = range(len(columns.names))
    if scan.columns is not None:
        keep = [i for i in keep if columns.names[i] in scan.columns]  # type: ignore[assignment]
    values = columns.values
    if scan.condition is not None:
        needed = conditions.decider(scan.condition)
        flags = [needed(dict(zip(columns.names, row, strict=True))) for row in zip(*values, strict=True)]
        values = tuple(list(itertools.compress(v, flags)) for v in values)
    if scan.limit is not None:
        values = tuple(v[: scan.limit] for v in values)
    return Columns(
        names=tuple(columns.names[i] for i in keep),
        kinds=tuple(columns.kinds[i] for i in keep),
        values=tuple(values[i] for i in keep),
    )


def _cut(view: node_view.NodeView, columns: Columns, scan: Scan) -> Columns:
    if columns.n_rows <= MAX_ROWS:
        return columns
    view.miss(f"{columns.n_rows} rows of {scan.table}: only the last {MAX_ROWS} are sent")
    return Columns(
        names=columns.names, kinds=columns.kinds, values=tuple(v[-MAX_ROWS:] for v in columns.values)
    )
