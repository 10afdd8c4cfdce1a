"""Between records and rows: plain values going in, records coming out."""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from probing_cluster.core import clock, records
from probing_cluster.db import plain, tables

_R = TypeVar("_R")
_Converters = tuple[tuple[str, Callable[[Any], Any]], ...]
_NAMES: dict[type[Any], tuple[str, ...]] = {}
_CONVERTERS: dict[type[Any], _Converters] = {}


def to_row(record: Any) -> dict[str, Any]:
    """A record's fields as the values its columns take."""
    return {name: plain.plain(getattr(record, name)) for name in names(type(record))}


def from_row(cls: type[_R], row: Mapping[Any, Any]) -> _R:
    """The record of a row; columns the record does not have are ignored."""
    return records.of_checked(cls, {name: convert(row[name]) for name, convert in _converters(cls)})


def names(cls: type[Any]) -> tuple[str, ...]:
    """The field names of a record, in order."""
    if cls not in _NAMES:
        _NAMES[cls] = tuple(f.name for f in dataclasses.fields(cls))
    return _NAMES[cls]


def _converters(cls: type[Any]) -> _Converters:
    if cls not in _CONVERTERS:
        hints = typing.get_type_hints(cls)
        kinds = {name: tables.split_optional(hints[name])[0] for name in names(cls)}
        _CONVERTERS[cls] = tuple((name, _converter(kind)) for name, kind in kinds.items())
    return _CONVERTERS[cls]


def _converter(kind: Any) -> Callable[[Any], Any]:
    """From what the driver gives to what the field's type says."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return lambda value: None if value is None else tuple(value)
    if kind is datetime:
        return _utc
    if origin is not None:
        inner = _converter(typing.get_args(kind)[1])
        return lambda value: None if value is None else {k: inner(v) for k, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        member = kind
        known: dict[str | None, enum.StrEnum | None] = {None: None, **{word.value: word for word in kind}}
        return lambda value: known[value] if value in known else member(value)
    return lambda value: value


def _utc(value: datetime | None) -> datetime | None:
    return (
        value
        if value is None or value.tzinfo is UTC
        else clock.require_utc("a time from the database", value)
    )
