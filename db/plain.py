"""Values as Postgres can hold them: no NUL, no lone surrogate, no NaN inside JSON. Standard library only."""

from __future__ import annotations

import enum
import json
import math
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def plain(value: Any) -> Any:
    """`value` with enums as their words, tuples as lists, and its text mended."""
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
    whole = value.replace("\0", "\ufffd")
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def dumps(value: Any) -> str:
    """JSON that jsonb takes: a number that is not finite becomes null, for it is no reading."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def _default(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


_encode = json.JSONEncoder(
    default=_default, ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode
