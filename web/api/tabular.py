"""Rows of a question, whoever answered it, as JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from probing_cluster.control_plane.terminal import sql_values
from probing_cluster.web import documents
from probing_cluster.web.api import operation


def document(heads: Sequence[str], rows: Sequence[Sequence[Any]], more: bool) -> documents.Rows:
    """The rows as JSON has them."""
    return documents.Rows(heads=list(heads), rows=[[_cell(v) for v in row] for row in rows], more=more)


def as_csv(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> operation.Raw:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(heads)
    writer.writerows([[_no_formula(sql_values.on_one_line(v)) for v in row] for row in rows])
    return _file(text.getvalue().encode("utf-8", "replace"), "text/csv", "rows.csv")


def as_parquet(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> operation.Raw:
    """The rows as Parquet; columns of mixed kinds as text."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = [_column(pa, [row[n] for row in rows]) for n in range(len(heads))]
    names = [f"{head}_{n}" if head in heads[:n] else head for n, head in enumerate(heads)]
    out = io.BytesIO()
    parquet.write_table(pa.table(columns, names=names), out)
    return _file(out.getvalue(), "application/vnd.apache.parquet", "rows.parquet")


def _column(pa: Any, values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if v is None else str(v) for v in values])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return [_cell(one) for one in value]
    value = sql_values.written(value)
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


def _no_formula(value: Any) -> Any:
    """A cell that a spreadsheet would run is text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value[:1] else value


def _file(body: bytes, media_type: str, name: str) -> operation.Raw:
    return operation.Raw(
        body=body,
        media_type=media_type,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
