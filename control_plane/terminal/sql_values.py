"""Values of a question's rows as docs/sql.md says ("How values are written"): as psql prints them, and times as the API writes them."""

from __future__ import annotations

import decimal
import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_AS_TEXT = (
    "record",
    "interval",
    *(
        f"{of}{kind}"
        for of in ("int4", "int8", "num", "date", "ts", "tstz")
        for kind in ("range", "multirange")
    ),
)
"""Types whose Python values lose what Postgres wrote: a month of an interval becomes 30 days there."""


def keep_text(cursor: psycopg.ServerCursor[Any]) -> None:
    """Has a cursor give values of these types as the server's own text."""
    from psycopg.types import string

    for name in _AS_TEXT:
        cursor.adapters.register_loader(name, string.TextLoader)


def written(value: Any) -> Any:
    """Bytes as `\\x00ff`, an instant as `2026-11-30T23:57:58.905442Z`; anything else as it is."""
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
    return value


def on_one_line(value: Any) -> Any:
    """A json value or an array as JSON on one line; anything else as `written`."""
    if not isinstance(value, dict | list):
        return written(value)
    return json.dumps(of_json(value), separators=(",", ":"), ensure_ascii=False, default=str)


_MOST_WHOLE = 2**63
"""Postgres's own bigint goes no further; a larger numeric is text, with all of its digits."""


def of_json(value: Any) -> Any:
    """A value of a row as JSON has it. NaN and infinity are null, as everywhere; a numeric is a number if that loses no digit, else text."""
    if isinstance(value, dict):
        return {key: of_json(v) for key, v in value.items()}
    if isinstance(value, list):
        return [of_json(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            return None
        is_whole = abs(value) < _MOST_WHOLE and value == value.to_integral_value()
        number = int(value) if is_whole else float(value)
        return number if decimal.Decimal(str(number)) == value else str(value)
    return written(value)
