"""What every part of the store builds on: one engine, reads to records, writes from records."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import psycopg.rows
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from probing_cluster.core import errors
from probing_cluster.db import binary_arrays, driver_errors, engines, rows, tables, unreadable

_R = TypeVar("_R")
_M = TypeVar("_M", bound=Mapping[Any, Any])


_WRITES = sa.text("SELECT 1 FROM probing.state WHERE false FOR UPDATE")
"""Touches no row, and is refused where nothing may be written."""


class StoreBase:
    """A database with our schema, read for one cluster or for all that it holds."""

    def __init__(
        self, url: str, *, cluster: str | None = None, pool_size: int = 8, max_overflow: int = 2
    ) -> None:
        """`pool_size` connections are kept, and `max_overflow` more are opened while they are needed. `cluster`: see `of`."""
        self.url = url
        self.cluster = cluster
        self.engine = engines.make(url, pool_size=pool_size, max_overflow=max_overflow)
        sa.event.listen(self.engine, "handle_error", _read_only_is_gone)
        self._readers: list[Any] = []
        self.skipped = unreadable.Skipped()

    def of(self, cluster: str | None) -> Self:
        """The same database over the same connections, whose reads give one cluster's rows; None = those of all clusters.

        Node names and job ids are one cluster's own: two clusters of one database may both have a node n1 and a job 4242.
        """
        bound = copy.copy(self)
        bound.cluster = cluster
        return bound

    def arrow(self, query: str, *parameters: Any) -> Any:
        """The rows of a query as a `pyarrow.Table`, `$1` … standing for the parameters; raises DatabaseUnavailable."""
        if not self._readers:
            from probing_cluster.db import arrow  # ADBC's import costs readers a good part of a second

            self._readers.append(arrow.ArrowReader(self.url))
        return self._readers[0].table(query, parameters)

    def rows(self, query: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows of a query, with `:name` filled from `given`; lists of one kind go as binary arrays.

        The rows are psycopg's dictionaries: for thousands of rows SQLAlchemy's own cost as much again.
        """
        arrays = {name: binary_arrays.of(value) for name, value in given.items()}

        def read(connection: sa.Connection) -> list[dict[str, Any]]:
            cursor = connection.connection.cursor(row_factory=psycopg.rows.dict_row)
            found: list[dict[str, Any]] = cursor.execute(_driver_sql(query), arrays).fetchall()
            return found

        return self._read(read)

    def readable(self, cls: type[_R], found: Iterable[Mapping[Any, Any]]) -> list[_R]:
        """The records of rows; one that is none is left out, counted and logged with its node."""
        made = []
        for row in found:
            try:
                made.append(rows.from_row(cls, row))
            except errors.MalformedInput as exc:
                self.skipped.note(tables.table_name(cls), row, str(exc))
        return made

    def require_writable(self) -> None:
        """Raises DatabaseReadOnly where a session cannot write."""
        with engines.translated(), self.engine.connect() as connection:
            connection.execute(_WRITES)

    def close(self) -> None:
        """Give all connections back."""
        for reader in self._readers:
            reader.close()
        self.engine.dispose()

    def _of(self, column: sa.ColumnElement[Any], cluster: str | None = None) -> sa.ColumnElement[bool]:
        """`column` is the cluster that is asked for, else this store's; no restriction for a store of all clusters."""
        wanted = cluster if cluster is not None else self.cluster
        return sa.true() if wanted is None else column == wanted

    def _select(self, cls: type[_R], query: sa.Select[Any]) -> list[_R]:
        return self.readable(cls, self._mappings(query))

    def _mappings(self, query: sa.Select[Any]) -> list[sa.RowMapping]:
        """The rows of a query."""
        return self._read(lambda c: c.execute(query).mappings().fetchall())

    def _read(self, read: Callable[[sa.Connection], Sequence[_M]]) -> list[_M]:
        """What `read` gives, without the rows that hold a value no client can: with one of them the driver gives nothing."""
        try:
            with engines.translated(), self.engine.connect() as connection:
                return list(read(connection))
        except unreadable.LOAD_ERRORS:
            engine = engines.make(self.url, tolerant=True, poolclass=sa.NullPool)
        with engines.translated(), engine.connect() as connection:
            found = read(connection)
        for row in found:
            if _has_unreadable(row):
                self.skipped.note("", row, "a value that has no Python form")
        return [row for row in found if not _has_unreadable(row)]

    def _execute(self, statement: sa.Executable, given: Sequence[dict[str, Any]] | None = None) -> int:
        """Run one statement in its own transaction; the rows it touched."""
        # SQLAlchemy counts no inserted rows unless it is asked to: it says -1.
        counting = {"preserve_rowcount": True}
        with engines.translated(), self.engine.begin() as connection:
            return connection.execute(statement, given, execution_options=counting).rowcount

    def _upsert(self, cls: type[Any], records: Iterable[Any]) -> None:
        """Insert records of one class; an equal key replaces the row."""
        given = [rows.to_row(record) for record in records]
        if given:
            self._execute(upsert(tables.BY_RECORD[cls]), given)


def _read_only_is_gone(raised: sa.engine.ExceptionContext) -> None:
    """A session that may not write is thrown away, with those opened before: the next ones may."""
    if getattr(raised.original_exception, "sqlstate", None) == driver_errors.READ_ONLY:
        raised.is_disconnect = True


def _has_unreadable(row: Mapping[Any, Any]) -> bool:
    return any(value is unreadable.VALUE for value in row.values())


@functools.cache
def _driver_sql(query: str) -> str:
    dialect = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's class is not annotated
    return str(sa.text(query).compile(dialect=dialect))


def upsert(table: sa.Table, source: sa.Select[Any] | None = None) -> pg.Insert:
    """INSERT … ON CONFLICT (primary key) DO UPDATE of every record column, from parameters or from another table's rows."""
    insert = pg.insert(table)
    if source is not None:
        insert = insert.from_select([c.name for c in source.selected_columns], source)
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
