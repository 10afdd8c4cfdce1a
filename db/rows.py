"""Between records and rows: plain values going in, records coming out."""

from __future__ import annotations

import dataclasses
import enum
import typing
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from probing_cluster.core import clock, errors, records
from probing_cluster.db import plain, tables

_R = TypeVar("_R")
_Converters = tuple[tuple[str, Callable[[Any], Any]], ...]
_NAMES: dict[type[Any], tuple[str, ...]] = {}
_CONVERTERS: dict[type[Any], _Converters] = {}


def to_row(record: Any) -> dict[str, Any]:
    """A record's fields as the values its columns take."""
    return {name: plain.plain(getattr(record, name)) for name in names(type(record))}


def from_row(cls: type[_R], row: Mapping[Any, Any]) -> _R:
    """The record of a row; columns the record does not have are ignored. Raises MalformedInput for one that is none."""
    try:
        values = {name: row[name] for name in names(cls)}
        for name, convert in _converters(cls):
            values[name] = convert(values[name])
        if cls is records.AgentHeartbeat:
            _require_faults(values["faults"])
    except (AttributeError, TypeError, ValueError) as exc:
        raise errors.MalformedInput(f"a row of {tables.table_name(cls)}: {exc}") from exc
    return records.of_checked(cls, values)


_WORDS = ("kind", "code", "device", "severity", "event_id", "gpu_uuid", "pci_bus_id", "source", "message")


def _require_faults(faults: Mapping[str, Any]) -> None:
    """Raises where a heartbeat's fault is not what everybody takes it for."""
    for fault in faults.values():
        ids = fault.get("event_ids") or ()
        if not isinstance(ids, list | tuple) or not all(
            isinstance(w, str | None) for w in map(fault.get, _WORDS)
        ):
            raise ValueError("a fault with something else where words belong")
        for name in ("since", "confirmed_at"):
            if fault.get(name) is not None and datetime.fromisoformat(fault[name]).tzinfo is None:
                raise ValueError(f"a fault whose {name} has no zone")
        for text in (fault.get("event_id"), *ids):
            if text is not None:
                uuid.UUID(text)


def names(cls: type[Any]) -> tuple[str, ...]:
    """The field names of a record, in order."""
    if cls not in _NAMES:
        _NAMES[cls] = tuple(f.name for f in dataclasses.fields(cls))
    return _NAMES[cls]


def _converters(cls: type[Any]) -> _Converters:
    """The fields whose values the driver does not give as the record has them."""
    if cls not in _CONVERTERS:
        hints = typing.get_type_hints(cls)
        kinds = {name: tables.split_optional(hints[name]) for name in names(cls)}
        made = {name: _converter(*kind) for name, kind in kinds.items()}
        _CONVERTERS[cls] = tuple(
            (name, convert) for name, convert in made.items() if convert is not _as_it_is
        )
    return _CONVERTERS[cls]


def _converter(kind: Any, optional: bool = True) -> Callable[[Any], Any]:
    """A function that makes the field's type of what the driver gives."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return lambda value: None if value is None else tuple(value)
    if kind is datetime:
        return _utc
    if origin is not None:
        inner = _converter(typing.get_args(kind)[1])
        if not optional:
            return lambda value: {k: inner(v) for k, v in value.items()}  # JSON's null is no object
        return lambda value: None if value is None else {k: inner(v) for k, v in value.items()}
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        member = kind
        known: dict[str | None, enum.StrEnum | None] = {None: None, **{word.value: word for word in kind}}
        return lambda value: known[value] if value in known else member(value)
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _utc(value: datetime | None) -> datetime | None:
    return (
        value
        if value is None or value.tzinfo is UTC
        else clock.require_utc("a time from the database", value)
    )
