"""Arrow schemas derived from the records, and Postgres rows as Arrow batches: the engine's way in.

The types are those ADBC gives for our columns, so that what is read equals what is declared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import threading
import typing
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import adbc_driver_manager as adbc_manager
import adbc_driver_postgresql as adbc_postgresql
import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from probing_cluster.core import errors
from probing_cluster.db import driver_errors, plain, tables

_UNAVAILABLE = (adbc.OperationalError, adbc.InterfaceError, adbc.InternalError)
_SCALARS: dict[type[Any], Any] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: pa.timestamp("us", tz="UTC"),
    uuid.UUID: pa.uuid(),
}


def schema(cls: type[Any]) -> Any:
    """The Arrow schema of a record; each field carries its meaning as `doc`."""
    hints = typing.get_type_hints(cls)
    return pa.schema(
        [_field(f, hints[f.name]) for f in dataclasses.fields(cls)], metadata={"doc": tables.meaning(cls)}
    )


def table(cls: type[Any], records: Iterable[Any]) -> Any:
    """Records as one Arrow table of that schema."""
    wanted = schema(cls)
    columns: dict[str, list[Any]] = {name: [] for name in wanted.names}
    for record in records:
        for name, values in columns.items():
            values.append(getattr(record, name))
    arrays = [_array(values, wanted.field(name).type) for name, values in columns.items()]
    return pa.Table.from_arrays(arrays, schema=wanted)


@contextlib.contextmanager
def reading(uri: str, query: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
    """A `pyarrow.RecordBatchReader` over a query's rows; `$1` … stand for the parameters.

    Without parameters the rows are streamed, in batches of 16 MiB; with them the driver holds them all at once.

    numeric, inet and ranges have no Arrow form: cast them in SQL. Raises DatabaseUnavailable.
    """
    with connected(uri) as connection, transaction(connection), connection.cursor() as cursor:
        cursor.execute(query, parameters=list(parameters) or None)
        yield cursor.fetch_record_batch()


@contextlib.contextmanager
def connected(uri: str) -> Iterator[Any]:
    """An ADBC connection that holds no transaction; its operational errors come out as DatabaseUnavailable."""
    try:
        with _open(uri) as connection:
            yield connection
    except _UNAVAILABLE as exc:
        raise driver_errors.unreachable(exc) from exc
    except adbc.ProgrammingError as exc:
        if exc.sqlstate not in driver_errors.OUTDATED:
            raise
        raise driver_errors.outdated(exc) from exc


class _Database(adbc_manager.AdbcDatabase):
    """The driver's knowledge of a database, without a connection: the driver reads all its types to make one, in 40 ms of processor."""

    def close(self) -> None:
        """Nothing: a connection closes its database, and the next one wants it."""

    def __del__(self) -> None:
        super().close()


@functools.lru_cache(maxsize=8)
def _database(uri: str) -> _Database:
    return _Database(driver=adbc_postgresql._driver_path(), uri=uri)  # noqa: SLF001 - its own `connect` makes the class it knows


def _open(uri: str) -> Any:
    database = _database(uri)
    return adbc.Connection(database, adbc_manager.AdbcConnection(database), autocommit=True)


def _field(item: dataclasses.Field[Any], hint: Any) -> Any:
    kind, optional = tables.split_optional(hint)
    return pa.field(item.name, arrow_type(kind), nullable=optional, metadata={"doc": item.metadata["doc"]})


def arrow_type(kind: Any) -> Any:
    """The Arrow type of a record field's type, None already taken off."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return pa.list_(arrow_type(typing.get_args(kind)[0]))
    if origin in (Mapping, dict):
        return pa.json_(pa.string())
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return pa.string()
    return _SCALARS[kind]


def _array(values: list[Any], kind: Any) -> Any:
    if kind == pa.json_(pa.string()):
        text = [None if v is None else plain.dumps(plain.plain(v)) for v in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(text, pa.string()))
    if kind == pa.uuid():
        return pa.array([None if v is None else v.bytes for v in values], pa.binary(16)).cast(kind)
    if kind == pa.list_(pa.uuid()):
        return pa.array([[v.bytes for v in row] for row in values], pa.list_(pa.binary(16))).cast(kind)
    if pa.types.is_string(kind):
        return pa.array([None if v is None else plain.text(str(v)) for v in values], kind)
    return pa.array(values, kind)


@contextlib.contextmanager
def transaction(connection: Any) -> Iterator[None]:
    """One transaction on a connection that holds none before or after: ADBC prepares a query and runs it in two steps.

    Behind PgBouncer's transaction mode only a transaction keeps both on one server; the statement has no name, so
    that on another server somebody else's last one would run. And a client that leaves within a transaction, as
    ADBC's own way is, costs PgBouncer that server: it must close it and open another.
    """
    handle = connection.adbc_connection
    handle.set_autocommit(False)
    try:
        yield
    except BaseException:
        with contextlib.suppress(adbc.Error):  # the first error is the one reported
            handle.rollback()
            handle.set_autocommit(True)
        raise
    handle.set_autocommit(True)


class ArrowReader:
    """One ADBC connection kept for many queries."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._connection: Any = None

    def table(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """The rows of a query as a `pyarrow.Table`; raises DatabaseUnavailable."""
        with self._lock:
            if self._connection is not None:
                # The server may have gone and come back since.
                with contextlib.suppress(errors.DatabaseUnavailable):
                    return self._execute(query, parameters)
            return self._execute(query, parameters)

    def close(self) -> None:
        """Give the connection back; a later query opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _execute(self, query: str, parameters: Sequence[Any]) -> Any:
        try:
            if self._connection is None:
                self._connection = _open(self._uri)
            with transaction(self._connection), self._connection.cursor() as cursor:
                cursor.execute(query, parameters=list(parameters) or None)
                return cursor.fetch_arrow_table()
        except _UNAVAILABLE as exc:
            self.close()
            raise driver_errors.unreachable(exc) from exc
