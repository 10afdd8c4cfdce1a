"""What every part of the store builds on: one engine, reads to records, writes from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.db import engines, rows, tables

_R = TypeVar("_R")


class StoreBase:
    """A database with our schema."""

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        self.url = url
        self.engine = engines.make(url, pool_size=pool_size, max_overflow=2)
        self._reader: Any = None

    def arrow(self, query: str, *parameters: Any) -> Any:
        """The rows of a query as a `pyarrow.Table`, `$1` … standing for the parameters; raises DatabaseUnavailable."""
        if self._reader is None:
            from probing_cluster.db import arrow  # ADBC's import costs readers a good part of a second

            self._reader = arrow.Reader(self.url)
        return self._reader.table(query, parameters)

    def close(self) -> None:
        """Give all connections back."""
        if self._reader is not None:
            self._reader.close()
        self.engine.dispose()

    def _select(self, cls: type[_R], query: sa.Select[Any]) -> list[_R]:
        with engines.translated(), self.engine.connect() as connection:
            return [rows.from_row(cls, row) for row in connection.execute(query).mappings().fetchall()]

    def _execute(self, statement: sa.Executable, given: Sequence[dict[str, Any]] | None = None) -> int:
        """Run one statement in its own transaction; the rows it touched."""
        with engines.translated(), self.engine.begin() as connection:
            return connection.execute(statement, given).rowcount

    def _upsert(self, cls: type[Any], records: Iterable[Any]) -> None:
        """Insert records of one class; an equal key replaces the row."""
        given = [rows.to_row(record) for record in records]
        if given:
            self._execute(upsert(tables.BY_RECORD[cls]), given)


def upsert(table: sa.Table) -> pg.Insert:
    """INSERT … ON CONFLICT (primary key) DO UPDATE of every record column."""
    insert = pg.insert(table)
    keys = [column.name for column in table.primary_key.columns]
    new = {
        c.name: insert.excluded[c.name] for c in table.columns if c.name not in keys and c.name in _own(table)
    }
    return insert.on_conflict_do_update(index_elements=keys, set_=new)


def _own(table: sa.Table) -> set[str]:
    names = {name for cls, t in tables.BY_RECORD.items() if t is table for name in rows.names(cls)}
    return names or {c.name for c in table.columns}


def some(column: sa.ColumnElement[Any], values: Iterable[Any] | None) -> sa.ColumnElement[bool]:
    """`column` is one of `values`; no restriction when None."""
    return sa.true() if values is None else column == sa.any_(sa.literal(list(values), pg.ARRAY(column.type)))
