"""What a record from foreign text must keep to so that the database can hold it, and a cluster can have meant it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from probing_cluster.core import errors

R = TypeVar("R")
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Times outside are a broken clock or a broken file."""
_MOST = 2**63 - 1
MAX_DEPTH = 64
"""Levels of a detail; Postgres's own JSON parser ends at some thousands."""
_MAX_TEXT = 1 << 20


def why_not(record: Any) -> str | None:
    """Why a record cannot be stored, naming its field; None when it can."""
    for item in dataclasses.fields(record):
        why = _why_not(getattr(record, item.name), MAX_DEPTH)
        if why is not None:
            return f"{item.name}: {why}"
    return None


def why_not_json(value: Any) -> str | None:
    """Why a JSON value cannot be stored; None when it can."""
    return _why_not(value, MAX_DEPTH)


def require(record: R) -> R:
    """The record itself; raises MalformedInput with the field that cannot be stored."""
    why = why_not(record)
    if why is not None:
        raise errors.MalformedInput(why)
    return record


def _why_not(value: Any, depth: int) -> str | None:
    if isinstance(value, int) and not -_MOST - 1 <= value <= _MOST:
        return f"a number of {value.bit_length()} bits is too large"
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    if isinstance(value, datetime) and not _FIRST <= value < _LAST:
        return f"the year {value.year} is none a cluster ran in"
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return f"text of {len(value)} characters is too long"
    if isinstance(value, dict):
        return _first((*value, *value.values()), depth)
    if isinstance(value, list | tuple):
        return _first(value, depth)
    return None


def _first(values: Iterable[Any], depth: int) -> str | None:
    if depth <= 0:
        return f"nested deeper than {MAX_DEPTH} levels"
    return next((why for value in values if (why := _why_not(value, depth - 1)) is not None), None)
