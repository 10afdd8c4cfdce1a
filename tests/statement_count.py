"""Counts what is sent to the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adbc_driver_manager.dbapi as adbc
import psycopg
import pytest


class Statements:
    """Counts what is sent to the database, by whichever driver; many rows of one statement count once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        for owner, name in (
            (psycopg.Cursor, "execute"),
            (psycopg.Cursor, "executemany"),
            (psycopg.Connection, "connect"),
            (adbc.Cursor, "execute"),
            (adbc.Cursor, "adbc_ingest"),
        ):
            self._count(monkeypatch, owner, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        real = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            self.n += 1
            return real(*given, **named) if name != "connect" else real(*given[1:], **named)

        monkeypatch.setattr(owner, name, classmethod(counted) if name == "connect" else counted)

    def of(self, work: Callable[[], object]) -> int:
        """How many `work` sends."""
        before = self.n
        work()
        return self.n - before
