"""Tables that a node keeps of an ended job: as compressed columns in one file, written without Arrow and read where it is.

    MAGIC, 8 bytes (length of the header), the header as JSON, the columns one after the other, each compressed with zlib
    header: {"tables": [{"schema", "name", "rows", "note", "columns": [[name, kind, bytes of nulls, bytes of values], …]}, …]}

A column of integers or times (nanoseconds since 1970) is 64-bit, of floats IEEE, little-endian; one of booleans is integers, one
of texts JSON. Its nulls are one byte a row, absent where there are none. The owner of the job writes the file: nothing in it is trusted.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from probing_cluster.core import sanitize
from probing_cluster.core.errors import MalformedInput

Kind = Literal["int", "float", "text", "bool", "time"]
KINDS: tuple[Kind, ...] = ("int", "float", "text", "bool", "time")
MAGIC = b"PROBINGKEPT1\n\0\0\0"
MAX_TABLES = 256
MAX_COLUMNS = 128
MAX_ROWS = 1 << 22
MAX_TEXT_BYTES = 512
"""Of a value's JSON."""
MAX_HEADER_BYTES = 1 << 20
_LEVEL = 1


@dataclass(frozen=True, kw_only=True)
class KeptColumn:
    """One column."""

    name: str
    kind: Kind
    values: Sequence[Any]
    """None is null; times are nanoseconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """One table of one node."""

    schema: str
    name: str
    columns: tuple[KeptColumn, ...]
    note: Mapping[str, int] = field(default_factory=dict)
    """Counts that belong to it, such as rows dropped."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.columns[0].values) if self.columns else 0


def write(tables: Sequence[KeptTable], most_bytes: int) -> tuple[bytes, int]:
    """(the file of these tables, how many of them were left out because it would have exceeded `most_bytes`)."""
    body, header, left_out = bytearray(), [], 0
    for table in tables:
        columns = [(c, _packed_nulls(c), _packed(c)) for c in table.columns]
        if len(body) + sum(len(n) + len(v) for _, n, v in columns) > most_bytes:
            left_out += 1
            continue
        for _, nulls, values in columns:
            body += nulls + values
        header.append(
            {
                "schema": table.schema,
                "name": table.name,
                "rows": table.n_rows,
                "note": dict(table.note),
                "columns": [[c.name, c.kind, len(n), len(v)] for c, n, v in columns],
            }
        )
    words = json.dumps({"tables": header}).encode()
    return MAGIC + len(words).to_bytes(8, "little") + words + bytes(body), left_out


def _packed_nulls(column: KeptColumn) -> bytes:
    nulls = bytes(value is None for value in column.values)
    return zlib.compress(nulls, _LEVEL) if any(nulls) else b""


def _packed(column: KeptColumn) -> bytes:
    if column.kind == "text":
        raw = json.dumps(["" if v is None else v for v in column.values]).encode()
    elif column.kind == "float":
        raw = _little(array("d", [0.0 if v is None else v for v in column.values]))
    else:
        raw = _little(array("q", [0 if v is None else int(v) for v in column.values]))
    return zlib.compress(raw, _LEVEL)


def _little(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def read(data: bytes) -> list[KeptTable]:
    """The tables of a file; raises MalformedInput for anything that `write` would not have written."""
    try:
        return _read(data)
    except (ValueError, TypeError, KeyError, zlib.error, RecursionError) as exc:
        raise MalformedInput("a file of kept tables is damaged, or is none") from exc


def _read(data: bytes) -> list[KeptTable]:
    start = len(MAGIC) + 8
    size = int.from_bytes(data[len(MAGIC) : start], "little")
    if not data.startswith(MAGIC) or size > MAX_HEADER_BYTES:
        raise ValueError("header")
    header = json.loads(data[start : start + size])["tables"]
    at, found = start + size, []
    if len(header) > MAX_TABLES:
        raise ValueError("tables")
    for table in header:
        n_rows = _count(table["rows"], MAX_ROWS)
        columns = []
        for name, kind, null_bytes, value_bytes in table["columns"]:
            middle = at + _count(null_bytes, len(data))
            end = middle + _count(value_bytes, len(data))
            nulls = _inflated(data[at:middle], n_rows, n_rows) if middle > at else bytes(n_rows)
            values = _values(kind, data[middle:end], n_rows)
            kept = [None if null else value for null, value in zip(nulls, values, strict=True)]
            columns.append(KeptColumn(name=_name(name), kind=kind, values=kept))
            at = end
        if not 0 < len(columns) <= MAX_COLUMNS or len({c.name for c in columns}) != len(columns):
            raise ValueError("columns")
        note = {_name(k): _count(v, 1 << 63) for k, v in table["note"].items()}
        found.append(
            KeptTable(
                schema=_name(table["schema"]), name=_name(table["name"]), columns=tuple(columns), note=note
            )
        )
    return found


def _values(kind: Any, packed: bytes, n_rows: int) -> Sequence[Any]:
    if kind == "text":
        texts = json.loads(_inflated(packed, 2, 2 + n_rows * MAX_TEXT_BYTES))
        if len(texts) != n_rows or not all(isinstance(text, str) for text in texts):
            raise ValueError("texts")
        return [sanitize.clean(text, MAX_TEXT_BYTES) for text in texts]
    if kind not in KINDS:
        raise ValueError("kind")
    numbers = array("d" if kind == "float" else "q")
    numbers.frombytes(_inflated(packed, n_rows * 8, n_rows * 8))
    if sys.byteorder == "big":
        numbers.byteswap()
    return [bool(v) for v in numbers] if kind == "bool" else numbers


def _inflated(packed: bytes, least: int, most: int) -> bytes:
    """The decompressed bytes, `least` to `most` of them. Decompression stops one byte past `most`, so a bomb cannot fill the memory."""
    engine = zlib.decompressobj()
    raw = engine.decompress(packed, most + 1)
    if not least <= len(raw) <= most or not engine.eof:
        raise ValueError("size")
    return raw


def _count(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError("number")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 64 or not value.isprintable():
        raise ValueError("name")
    return value


def why_not_own(directory: Path, uid: int) -> str:
    """Why a user, who asks, can keep nothing in a directory: it, or what it would lie in, is another's. Empty if it is theirs or can be made."""
    for part in (directory, *directory.parents):
        try:
            found = part.lstat()
        except OSError:
            continue
        if part != directory and os.access(part, os.W_OK | os.X_OK):
            return ""
        if found.st_uid != uid:
            return f"{part} belongs to {_account(found.st_uid)}, not to {_account(uid)}"
        return "" if stat.S_ISDIR(found.st_mode) else f"{part} is no directory"
    return ""


def _account(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"
