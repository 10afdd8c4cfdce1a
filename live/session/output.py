"""A result as people and programs want it: a table, JSON, CSV, an Arrow stream, Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import pyarrow as pa

from probing_cluster.core import sanitize
from probing_cluster.live.session import unpacking

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
        to.write(json.dumps(_without_nan(_plain(rows)), indent=2, ensure_ascii=False).encode() + b"\n")
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
    """Rows of texts and numbers; instants as ISO text in UTC."""
    plain = unpacking.for_python(rows)
    columns = [_values(rows.column(i), plain.column(i)) for i in range(rows.num_columns)]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray, plain: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        ns = column.cast(pa.timestamp("ns", tz=column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if v is None else instant(v) for v in ns]
    return [value(v) for v in plain.to_pylist()]


def instant(ns: int) -> str:
    """Nanoseconds since 1970 as ISO 8601 in UTC, to the microsecond."""
    try:
        return (
            datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            + f".{ns % 10**9 // 1000:06d}Z"
        )
    except (ValueError, OverflowError, OSError):
        return str(ns)


def value(found: Any) -> Any:
    """A value of `unpacking.for_python` as text or number, or lists of them."""
    if found is None or isinstance(found, str | int | float | bool):
        return found
    if isinstance(found, timedelta):
        return duration(found)
    if isinstance(found, pa.MonthDayNano):
        return interval(*found)
    if isinstance(found, datetime):
        return found.isoformat()
    if isinstance(found, list):
        return [value(v) for v in found]
    if isinstance(found, dict):
        return {str(k): value(v) for k, v in found.items()}
    return str(found)


def interval(months: int, days: int, nanoseconds: int) -> str:
    """A span of time as Postgres writes it: `1 mon 2 days 03:04:05.5`."""
    sign, us = "-" if nanoseconds < 0 else "", abs(nanoseconds) // 1000
    seconds = f"{us // 1_000_000 % 60:02d}" + f".{us % 1_000_000:06d}".rstrip("0").rstrip(".")
    clock = f"{sign}{us // 3_600_000_000:02d}:{us // 60_000_000 % 60:02d}:{seconds}"
    words = [f"{n} {word}{'' if abs(n) == 1 else 's'}" for n, word in ((months, "mon"), (days, "day")) if n]
    return " ".join([*words, *([clock] if us or not words else [])])


def duration(span: timedelta) -> str:
    """The same of a difference of two instants: `1 day 00:00:02.5`."""
    days, rest = divmod(abs(span), timedelta(days=1))
    sign = -1 if span < timedelta() else 1
    return interval(0, sign * days, sign * (rest // timedelta(microseconds=1)) * 1000)


def _without_nan(found: Any) -> Any:
    if isinstance(found, float) and not math.isfinite(found):
        return None  # JSON has no such number
    if isinstance(found, list):
        return [_without_nan(v) for v in found]
    return {k: _without_nan(v) for k, v in found.items()} if isinstance(found, dict) else found


def _cell(found: Any) -> str:
    if found is None:
        return "-"
    if isinstance(found, float):
        return f"{found:.6g}"
    text = sanitize.clean(str(found), MAX_CELL + 1)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
