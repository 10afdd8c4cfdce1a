"""Rows that Postgres holds and we cannot read: one of them must not stop whoever reads all the others.

The door refuses such rows (`fit.sql`); these are of a time before it did, or of another way in.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from psycopg.types import datetime as psycopg_datetime
from psycopg.types import json as psycopg_json

LOG = logging.getLogger("probing.db")
LOAD_ERRORS = (psycopg.DataError, ValueError, RecursionError)
"""What reading an answer raises when a value in it has no Python form."""
_DIGITS_MAX = 300


class Value:
    """Stands in the place of a value that has no Python form."""

    def __repr__(self) -> str:
        return "unreadable"


VALUE = Value()


def loads(text: str | bytes) -> Any:
    """JSON whose numbers fit a double; raises ValueError, or RecursionError for what lies too deep."""
    plain = text if isinstance(text, str) else bytes(text).decode("utf-8", "surrogatepass")
    # Most columns of JSON are empty, and a pass reads thousands of them.
    return {} if plain == "{}" else _DECODER.decode(plain)


def _int(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number that no double holds")
    return number


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float)
"""One for all: json.loads makes a new one at each call that names a way to read numbers."""


def loads_or_value(text: str | bytes) -> Any:
    """The same, with `VALUE` instead of an error."""
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return VALUE


class _Time(psycopg_datetime.TimestamptzLoader):
    def load(self, data: Any) -> Any:
        return _time_or_value(super().load, data)


class _BinaryTime(psycopg_datetime.TimestamptzBinaryLoader):
    def load(self, data: Any) -> Any:
        return _time_or_value(super().load, data)


def _time_or_value(load: Callable[[Any], Any], data: Any) -> Any:
    try:
        return load(data)
    except (psycopg.DataError, ValueError, OverflowError):
        return VALUE


def tolerate(connection: Any) -> None:
    """Have a driver's connection give `VALUE` where it would raise; slower, so only for an answer that has raised."""
    psycopg_json.set_json_loads(loads_or_value, connection)
    for loader in (_Time, _BinaryTime):
        connection.adapters.register_loader("timestamptz", loader)


class Skipped:
    """How many rows were left out, by node; thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._named: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def note(self, table: str, row: Mapping[Any, Any], why: str) -> None:
        """Count a row that was left out; the first of a table and node is logged."""
        node = str(row.get("node") or "")
        with self._lock:
            self._counts[node] = self._counts.get(node, 0) + 1
            new = (table, node) not in self._named
            self._named.add((table, node))
        if new:
            LOG.warning(
                "a stored row cannot be read and is left out",
                extra={"fields": {"table": table, "node": node, "why": why[:200]}},
            )

    def counts(self) -> dict[str, int]:
        """Rows left out since the store was opened, by node."""
        with self._lock:
            return dict(self._counts)
