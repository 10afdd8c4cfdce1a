"""Records to bytes and back, for the spool: what was put in comes out equal."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import uuid
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from probing_cluster.core import errors, records

_R = TypeVar("_R")

LANES: dict[str, type[Any]] = {
    "event": records.HealthEvent,
    "check": records.CheckResult,
    "allocation": records.JobAllocation,
}
"""Lane name in the spool to the record it carries."""


def encode(value: Any) -> bytes:
    """One record as compact JSON; fields at their default are left out."""
    row = {}
    for item in dataclasses.fields(value):
        got = getattr(value, item.name)
        if got is None or (item.default is not dataclasses.MISSING and got == item.default):
            continue
        row[item.name] = got
    return json.dumps(row, default=_plain, separators=(",", ":"), allow_nan=False).encode()


def decode(body: bytes, cls: type[_R]) -> _R:
    """The record written by `encode`, of this release or another; raises MalformedInput when the bytes are not one.

    Fields that this release does not know are left out: an agent that was taken back delivers what the newer one left.
    """
    try:
        row = json.loads(body)
        convert, known = _converters(cls), records.known_fields(cls, row)
        return cls(**{k: convert[k](v) if k in convert and v is not None else v for k, v in known.items()})
    except (ValueError, TypeError, AttributeError) as exc:
        raise errors.MalformedInput(f"a spooled {cls.__name__} cannot be read: {exc}") from exc


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


_known: dict[type[Any], dict[str, Callable[[Any], Any]]] = {}


def _converters(cls: type[Any]) -> dict[str, Callable[[Any], Any]]:
    if cls in _known:
        return _known[cls]
    found = _known.setdefault(cls, {})
    for name, hint in typing.get_type_hints(cls).items():
        kind = _inner(hint)
        if kind is datetime:
            found[name] = datetime.fromisoformat
        elif kind is uuid.UUID:
            found[name] = uuid.UUID
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            found[name] = kind
        elif typing.get_origin(kind) is tuple:
            found[name] = tuple
    return found


def _inner(hint: Any) -> Any:
    """`X` of `X | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(a for a in typing.get_args(hint) if a is not type(None))
    return hint
