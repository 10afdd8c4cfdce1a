"""Frames of nodes as Arrow tables: the buffers are taken as they are, after every one has been checked."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from probing_cluster.core import errors, sanitize
from probing_cluster.live import packing
from probing_cluster.live.table import KINDS, Kind

TYPES: Mapping[Kind, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "time": pa.timestamp("ns", tz="UTC"),
}
_WIDTH = {"int": 8, "float": 8, "time": 8}
MAX_ROWS = 1 << 24
MAX_NAME_CHARS = 8192
"""An expression is a table's name, too."""
MAX_HEADER_BYTES = 4 << 20
"""Read as JSON, which takes many times its size."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The rows of one table on one node."""

    node: str
    table: str
    rows: pa.Table
    whole: bool
    missing: tuple[tuple[int | None, str], ...]
    ranks: frozenset[int]
    """The job's ranks on that node, dead ones included; empty where the table is not about ranks."""
    world_size: int
    pages_read: bool
    """Whether the pages of the probe were looked for."""


def for_python(rows: pa.Table) -> pa.Table:
    """The same rows for `to_pylist`, which knows nanoseconds only with pandas, and a service is without.

    Instants, times of day and durations are in microseconds, in lists, too.
    """
    return rows.cast(pa.schema([f.with_type(_in_microseconds(f.type)) for f in rows.schema]), safe=False)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_in_microseconds(f.type)) for f in kind])
    return kind


def unpack(data: bytes, sender: str) -> Frame:
    """The frame in `data`; raises MalformedInput for anything that the collector of the node `sender` would not have written."""
    try:
        (size,) = packing.LENGTH.unpack_from(data)
        if size > MAX_HEADER_BYTES:
            raise ValueError(f"a header of {size} bytes")  # noqa: TRY301
        start = packing.LENGTH.size + size
        header = json.loads(data[packing.LENGTH.size : start])
        body = pa.py_buffer(data).slice(start + -start % 8)
        n_rows = int(header["rows"])
        if not 0 <= n_rows <= MAX_ROWS:
            raise ValueError(f"{n_rows} rows")  # noqa: TRY301
        described = list(header["columns"])
        # Columns on one buffer would cost nothing here, and their size each where rows of several nodes are joined.
        if sum(int(bytes_) for *_, places in described for _, bytes_ in places) > body.size:
            raise ValueError("columns that share their bytes")  # noqa: TRY301
        columns = {_name(name): _array(body, n_rows, *rest) for name, *rest in described}
        node = _name(header["node"])
        _require_own_words(sender, node, columns.get("node"))
        missing = tuple((_number(rank), sanitize.clean(str(why), 300)) for rank, why in header["missing"])
        return Frame(
            node=node,
            table=_name(header["table"]),
            rows=pa.table(columns),
            whole=header["whole"] is True,
            missing=missing,
            ranks=frozenset(map(int, header.get("ranks") or ())),
            world_size=int(header.get("world_size") or 0),
            pages_read="ranks" in header,
        )
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        struct.error,
        RecursionError,
        pa.ArrowException,
    ) as exc:
        raise errors.MalformedInput(f"a collector's answer is damaged: {type(exc).__name__}: {exc}") from exc


def _require_own_words(sender: str, node: str, column: pa.Array | None) -> None:
    """Raises ValueError where a node tells of another: `node` by its header, `column` by its rows."""
    if node != sender:
        raise ValueError(f"{sender} speaks for {node}")
    if column is None or column.type != TYPES["text"]:
        return
    others = [name for name in column.unique().to_pylist() if name not in (sender, None)]
    if others:
        raise ValueError(f"{sender} speaks for {_name(others[0])}")


def _name(value: Any) -> str:
    """A name as a terminal may be given it."""
    return sanitize.clean(str(value), MAX_NAME_CHARS)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _array(
    body: pa.Buffer, n_rows: int, kind: Kind, n_null: int, places: Sequence[Sequence[int]]
) -> pa.Array:
    if kind not in KINDS or len(places) != (3 if kind == "text" else 2) or not 0 <= n_null <= n_rows:
        raise ValueError(f"a column of kind {kind!r}")
    validity, *buffers = [_slice(body, int(at), int(size)) for at, size in places]
    bits = -(-n_rows // 8)
    needed = [4 * (n_rows + 1), 0] if kind == "text" else [bits if kind == "bool" else _WIDTH[kind] * n_rows]
    if (n_null and validity.size < bits) or any(b.size < n for b, n in zip(buffers, needed, strict=True)):
        raise ValueError("a buffer is too short")
    made = pa.Array.from_buffers(TYPES[kind], n_rows, [validity if n_null else None, *buffers])
    # Offsets must ascend inside their buffer and texts must be UTF-8: else reading them would leave the buffer.
    made.validate(full=True)
    return made


def _slice(body: pa.Buffer, at: int, size: int) -> pa.Buffer:
    if at < 0 or size < 0 or at + size > body.size:
        raise ValueError("a buffer lies outside the frame")
    return body.slice(at, size)


def schema_of(frames: Iterable[Frame]) -> pa.Schema:
    """One schema for what several nodes know of a table: all columns; where types differ, the wider, else text.

    A column of rows that are all null says nothing about its type while another node knows better.
    """
    fields: dict[str, pa.DataType] = {}
    weak: set[str] = set()
    for frame in frames:
        for field in frame.rows.schema:
            known = fields.get(field.name)
            is_weak = frame.whole and frame.rows[field.name].null_count == frame.rows.num_rows
            if known is None or (field.name in weak and not is_weak):
                fields[field.name] = field.type
            elif not is_weak:
                fields[field.name] = _wider(known, field.type)
            if not is_weak:
                weak.discard(field.name)
            elif known is None:
                weak.add(field.name)
    return pa.schema(list(fields.items()))


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    numbers = (pa.int64(), pa.float64(), pa.bool_())
    if one in numbers and other in numbers:
        return pa.float64() if pa.float64() in (one, other) else pa.int64()
    return pa.string()


def joined(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """All rows with the schema's columns in its order, as one chunk: many chunks cost DataFusion more than the copy."""
    same = [fitted(t, schema) for t in tables]
    return pa.concat_tables(same).combine_chunks() if same else schema.empty_table()


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows with the schema's columns; raises MalformedInput where a column holds what the schema's has not."""
    if table.schema == schema:
        return table
    try:
        return _cast(table, schema)
    except pa.ArrowException as exc:
        raise errors.MalformedInput(f"its columns are of other types: {exc}"[:300]) from exc


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(len(table), field.type))
        elif (found := table[field.name]).type == field.type:
            columns.append(found)
        else:
            columns.append(found.cast(field.type, safe=False))
    return pa.table(columns, schema=schema)
