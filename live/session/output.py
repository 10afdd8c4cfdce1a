"""A result as people and programs want it: a table, JSON, CSV, an Arrow stream, Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO

import pyarrow as pa

from probing_cluster.core import sanitize

MAX_CELL = 120


def write(
    rows: pa.Table, form: str, to: BinaryIO, render: Callable[[Sequence[str], Sequence[Sequence[Any]]], str]
) -> None:
    """`rows` in one of FORMATS; `render` lays out a table for people."""
    if form == "arrow":
        with pa.ipc.new_stream(to, rows.schema) as writer:
            writer.write_table(rows)
    elif form == "parquet":
        from pyarrow import parquet

        held = io.BytesIO()  # Parquet's footer says where everything lies: a pipe will do only for the whole
        parquet.write_table(rows, held, compression="zstd")
        to.write(held.getvalue())
    elif form == "json":
        to.write(json.dumps(_plain(rows), indent=2, ensure_ascii=False).encode() + b"\n")
    elif form == "csv":
        held_text = io.StringIO()
        writer = csv.writer(held_text, lineterminator="\n")
        writer.writerow(rows.column_names)
        writer.writerows([list(row.values()) for row in _plain(rows)])
        to.write(held_text.getvalue().encode())
    elif rows.column_names == ["plan_type", "plan"]:  # EXPLAIN: trees of many lines
        plans = rows.to_pylist()
        to.write("\n".join(f"{p['plan_type']}:\n{p['plan'].rstrip()}\n" for p in plans).encode())
    else:
        cells = [[_cell(v) for v in row.values()] for row in _plain(rows)]
        to.write((render(rows.column_names, cells) + "\n").encode("utf-8", "replace"))
    to.flush()


FORMATS = ("table", "json", "csv", "arrow", "parquet")


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of values that JSON has; instants as ISO text in UTC."""
    columns = [_values(rows.column(i)) for i in range(rows.num_columns)]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        ns = column.cast(pa.timestamp("ns", tz=column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if v is None else instant(v) for v in ns]
    return [_json(v) for v in column.to_pylist()]


def instant(ns: int) -> str:
    """Nanoseconds since 1970 as ISO 8601 in UTC, to the microsecond."""
    try:
        return (
            datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            + f".{ns % 10**9 // 1000:06d}Z"
        )
    except (ValueError, OverflowError, OSError):
        return str(ns)


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list):
        return [_json(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _json(v) for k, v in value.items()}
    return str(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = sanitize.clean(str(value), MAX_CELL + 1)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
