"""Between records and rows: plain values going in, records coming out."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from probing_cluster.db import tables

_R = TypeVar("_R")


def to_row(record: Any) -> dict[str, Any]:
    """A record's fields as the values its columns take."""
    return {name: plain(getattr(record, name)) for name in names(type(record))}


def from_row(cls: type[_R], row: Mapping[str, Any]) -> _R:
    """The record of a row; columns the record does not have are ignored."""
    values = {name: convert(row[name]) for name, convert in _converters(cls) if name in row}
    return cls(**values)


def plain(value: Any) -> Any:
    """A value Postgres can store: text without NUL and lone surrogates, tuples as lists."""
    if isinstance(value, enum.StrEnum):
        return value.value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {text(str(k)): plain(v) for k, v in value.items()}
    return value


def text(value: str) -> str:
    """`value` with what no Postgres text can hold replaced by U+FFFD."""
    if value.isascii():
        return value.replace("\0", "\ufffd") if "\0" in value else value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


@functools.cache
def names(cls: type[Any]) -> tuple[str, ...]:
    """The field names of a record, in order."""
    return tuple(f.name for f in dataclasses.fields(cls))


@functools.cache
def _converters(cls: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((name, _converter(tables.split_optional(hints[name])[0])) for name in names(cls))


def _converter(kind: Any) -> Callable[[Any], Any]:
    origin = typing.get_origin(kind)
    if origin is tuple:
        return lambda value: None if value is None else tuple(value)
    if origin is not None:
        inner = _converter(typing.get_args(kind)[1])
        return lambda value: None if value is None else {k: inner(v) for k, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        member = kind
        return lambda value: None if value is None else member(value)
    return lambda value: value
