"""Python lists as Postgres's binary arrays: one pass per column, where the driver makes a call per element.

The form is that of array_send: dimensions, null flag, element type, then each element with its length. A column
without any value is an empty array, which `unnest` fills up with nulls.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from psycopg import pq
from psycopg.adapt import Dumper

_NULL = b"\xff\xff\xff\xff"
_length = struct.Struct("!i").pack
_head = struct.Struct("!iiIii").pack
_empty = struct.Struct("!iiI").pack
_int8 = struct.Struct("!iq").pack
_float8 = struct.Struct("!id").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def _text(value: str) -> bytes:
    raw = value.encode()
    return _length(len(raw)) + raw


def _uuid(value: Any) -> bytes:
    return b"\0\0\0\x10" + bytes(value.bytes)


def _bigint(value: int) -> bytes:
    return _int8(8, value)


def _double(value: float) -> bytes:
    return _float8(8, value)


def _microseconds(value: datetime) -> int:
    since = value - _EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _timestamptz(value: datetime) -> bytes:
    return _int8(8, _microseconds(value))


_KINDS: dict[str, tuple[int, int, Callable[[Any], bytes]]] = {
    "text": (25, 1009, _text),
    "uuid": (2950, 2951, _uuid),
    "bigint": (20, 1016, _bigint),
    "double precision": (701, 1022, _double),
    "timestamptz": (1184, 1185, _timestamptz),
}
"""Type name: its oid, its array's oid, one element with its length."""
_NUMBERS = {"bigint": "iq", "double precision": "id", "timestamptz": "iq"}
"""Type name to the form of a length and a number, of those that are sent as one of 8 bytes."""


def pack(kind: str, values: Sequence[Any], form: Callable[[Any], Any] | None = None) -> bytes:
    """The values as one binary array; raises what encoding a value of the wrong type or size raises.

    `form` makes of a value that is not None what is sent for it; it is asked once for equal values.
    """
    oid, _, encode = _KINDS[kind]
    if values and form is None and kind in _NUMBERS:
        with contextlib.suppress(
            TypeError, struct.error
        ):  # a null among them, or what is no number: one by one
            return _head(1, 0, oid, len(values), 1) + _numbers(kind, values)
    packed: dict[Any, bytes] = {
        None: _NULL
    }  # columns repeat themselves: node, kind, source, message of a storm
    parts = [b""]
    for value in values:
        known = packed.get(value)
        if known is None:
            known = packed[value] = encode(value if form is None else form(value))
        parts.append(known)
    if len(packed) == 1:
        return _empty(0, 0, oid)
    parts[0] = _head(1, int(None in values), oid, len(values), 1)
    return b"".join(parts)


def _numbers(kind: str, values: Sequence[Any]) -> bytes:
    """Numbers or times without a null, all in one call: they seldom repeat themselves, and the hash of a time costs more than it does."""
    elements: list[Any] = [8] * (2 * len(values))
    elements[1::2] = [_microseconds(v) for v in values] if kind == "timestamptz" else values
    # Not struct.pack, which keeps the last hundred forms.
    return struct.Struct("!" + _NUMBERS[kind] * len(values)).pack(*elements)


class BinaryArray:
    """A packed array on its way to the server."""

    kind: ClassVar[str]

    def __init__(self, values: Sequence[Any], form: Callable[[Any], Any] | None = None) -> None:
        self.packed = pack(self.kind, values, form)


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: BinaryArray) -> bytes:
        return obj.packed


def _pair(kind: str) -> tuple[type[BinaryArray], type[_ArrayDumper]]:
    name = "".join(word.capitalize() for word in kind.split())
    array = type(f"{name}Array", (BinaryArray,), {"kind": kind})
    return array, type(f"{name}ArrayDumper", (_ArrayDumper,), {"oid": _KINDS[kind][1]})


_PAIRS = {kind: _pair(kind) for kind in _KINDS}
ARRAYS: dict[str, type[BinaryArray]] = {kind: array for kind, (array, _) in _PAIRS.items()}
DUMPERS: dict[type[BinaryArray], type[_ArrayDumper]] = dict(_PAIRS.values())
_BY_TYPE = {str: "text", int: "bigint", float: "double precision", datetime: "timestamptz", uuid.UUID: "uuid"}


def of(value: Any) -> Any:
    """A list of strings, numbers, times or ids (or None) as an array of its kind; anything else as it is."""
    if not isinstance(value, list):
        return value
    first = next((v for v in value if v is not None), None)
    kind = _BY_TYPE.get(type(first))
    return value if kind is None else ARRAYS[kind](value)
