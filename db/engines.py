"""SQLAlchemy engines on our databases, and every driver error turned into the product's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import sqlalchemy as sa

from probing_cluster.core import errors, settings
from probing_cluster.db import binary_arrays, driver_errors, network, plain, unreadable
from probing_cluster.db.server import embedded


def url_of(where: settings.Settings | settings.DatabaseSettings | str, *, create: bool = False) -> str:
    """The URL meant; the embedded server is started when the settings name none, and with `create` made where there is none.

    Raises DatabaseUnavailable.
    """
    if isinstance(where, str):
        return where
    database = where.database if isinstance(where, settings.Settings) else where
    if database.url:
        return database.url
    if not create:
        require_made(database)
    return embedded.ensure(database.directory)


def require_made(database: settings.DatabaseSettings) -> None:
    """Raises DatabaseUnavailable where the settings name no server and nobody has made the embedded one yet."""
    if not database.url and not embedded.exists(database.directory):
        raise errors.DatabaseUnavailable(
            f"there is no database in {database.directory} yet; `probing-ctl serve` or `probing-ctl db upgrade` makes one, "
            "`probing-ctl import` makes one of files"
        )


def make(url: str, *, tolerant: bool = False, **options: Any) -> sa.Engine:
    """An engine that speaks psycopg and keeps times in UTC; works through PgBouncer's transaction mode.

    A `tolerant` one gives `unreadable.VALUE` for a value that another raises at.
    """
    prefix, _, rest = url.partition("://")
    if prefix not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise errors.SettingsError(f"[database] url must start with postgresql://, not {prefix}://")
    arguments = {
        "prepare_threshold": None,
        "connect_timeout": 10,
        "application_name": "probing",
    } | network.PATIENCE
    engine = sa.create_engine(
        f"postgresql+psycopg://{rest}",
        connect_args=arguments,
        pool_pre_ping=True,
        json_serializer=plain.dumps,
        json_deserializer=unreadable.loads,
        **options,
    )
    sa.event.listen(engine, "connect", _knows_arrays)
    if tolerant:
        sa.event.listen(engine, "connect", lambda connection, _record: unreadable.tolerate(connection))
    return engine


def _knows_arrays(connection: Any, _record: Any) -> None:
    for array, dumper in binary_arrays.DUMPERS.items():
        connection.adapters.register_dumper(array, dumper)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Driver errors of the block as DatabaseUnavailable or NotPermitted; programming errors stay themselves."""
    try:
        yield
    except sa.exc.DBAPIError as exc:
        raise meaning(exc.orig) from exc
    except psycopg.Error as exc:
        raise meaning(exc) from exc


def meaning(exc: BaseException | None) -> Exception:
    """What a driver error means to a person."""
    if isinstance(exc, psycopg.errors.InsufficientPrivilege):
        return errors.NotPermitted(f"the database says: {driver_errors.first_line(exc)}")
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return driver_errors.unreachable(exc)
    if isinstance(
        exc,
        psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName | psycopg.errors.UndefinedFunction,
    ):
        return driver_errors.outdated(exc)
    return exc if isinstance(exc, Exception) else errors.DatabaseUnavailable(str(exc))
