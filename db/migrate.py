"""Bring a database to this version's schema: Alembic for tables, `.sql` files for functions, views and rights.

Tables change by numbered migrations, once. Functions, views and grants are replaced as a whole
whenever their text has changed: `REPEATABLE` names the files in order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import alembic.migration
import alembic.script
import sqlalchemy as sa

from probing_cluster.core import errors
from probing_cluster.db import engines, tables

_HERE = Path(__file__).resolve().parent
REPEATABLE = (
    "roles.sql",
    "fit.sql",
    "deliver.sql",
    "deliver_batch.sql",
    "drain_noted.sql",
    "displaced_noted.sql",
    "partitions.sql",
    "ops.sql",
    "sessions.sql",
    "ops_comments.sql",
    "rights.sql",
    "planner.sql",
)
# One upgrade at a time per database. A comment's lock keeps out another comment and no query, and only the owner may comment; an
# advisory lock is everybody's to hold. The comment stays what it is.
_LOCK = """
DO $lock$
BEGIN
    EXECUTE (SELECT format('COMMENT ON DATABASE %I IS %L', datname, shobj_description(oid, 'pg_database'))
             FROM pg_database WHERE datname = current_database());
END
$lock$
"""
OLDEST_SERVER = 150000
_READ_ONLY = """
SELECT CASE WHEN pg_is_in_recovery() THEN 'it is a standby'
    WHEN setting = 'on' THEN 'default_transaction_read_only is on, set for the ' || source END
FROM pg_settings WHERE name = 'default_transaction_read_only'
"""
"""Inputs: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchemaStatus:
    """How far a database is from this version's schema."""

    current: str | None
    head: str
    repeatable_current: bool
    read_only: str = ""
    """Why nothing can be written; empty where it can."""

    @property
    def up_to_date(self) -> bool:
        """True when nothing is left to do."""
        return self.current == self.head and self.repeatable_current


def upgrade(url: str) -> SchemaStatus:
    """Make the schema this version's, in one transaction; safe to call from several processes at once."""
    engine = engines.make(url)
    try:
        with engines.translated(), engine.begin() as connection:
            _check_server(connection)
            found = _status(connection)
            if found.up_to_date:
                return found
            connection.execute(sa.text(_LOCK))
            before = _status(connection)
            if before.up_to_date:
                return before
            connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {tables.SCHEMA}"))
            if before.current != before.head:
                alembic.command.upgrade(config(connection), "head")
            _apply_repeatable(connection)
            return _status(connection)
    finally:
        engine.dispose()


def status(url: str) -> SchemaStatus:
    """What `upgrade` would find; changes nothing."""
    engine = engines.make(url)
    try:
        with engines.translated(), engine.connect() as connection:
            return _status(connection)
    finally:
        engine.dispose()


def config(connection: sa.Connection) -> alembic.config.Config:
    """Alembic's configuration, bound to a connection."""
    made = alembic.config.Config()
    made.set_main_option("script_location", str(_HERE / "migrations").replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def run_in(context: Any) -> None:
    """What `migrations/env.py` does: migrate on the connection of `config`."""
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection, target_metadata=tables.metadata, **autogenerate_options(connection)
    )
    with context.begin_transaction():
        context.run_migrations()


def autogenerate_options(connection: sa.Connection) -> dict[str, Any]:
    """What Alembic compares: our schema, without the partitions that our own job makes and drops."""
    children = set(connection.scalars(sa.text("SELECT relname FROM pg_class WHERE relispartition")))

    def include_name(name: str | None, kind: str, _parents: Any) -> bool:
        return name == tables.SCHEMA if kind == "schema" else True

    def include_object(_item: Any, name: str | None, kind: str, reflected: bool, _other: Any) -> bool:
        return not (kind == "table" and reflected and name in children)

    return {
        "version_table_schema": tables.SCHEMA,
        "include_schemas": True,
        "include_name": include_name,
        "include_object": include_object,
        "compare_type": True,
        "compare_server_default": True,
    }


def _check_server(connection: sa.Connection) -> None:
    version = connection.scalar(sa.text("SELECT current_setting('server_version_num')::int"))
    if version is not None and version < OLDEST_SERVER:
        raise errors.DatabaseUnavailable(f"the server is Postgres {version // 10000}; 15 or newer is needed")


def _status(connection: sa.Connection) -> SchemaStatus:
    head = alembic.script.ScriptDirectory.from_config(config(connection)).get_current_head()
    assert head is not None
    context = alembic.migration.MigrationContext.configure(
        connection, opts={"version_table_schema": tables.SCHEMA}
    )
    current = context.get_current_revision()
    stored = None
    if current is not None:
        stored = connection.scalar(sa.select(tables.state.c.value).where(tables.state.c.key == "repeatable"))
    return SchemaStatus(
        current=current,
        head=head,
        repeatable_current=stored == _digest(),
        read_only=connection.scalar(sa.text(_READ_ONLY)) or "",
    )


def _digest() -> str:
    return hashlib.sha256(b"\0".join((_HERE / name).read_bytes() for name in REPEATABLE)).hexdigest()


def _apply_repeatable(connection: sa.Connection) -> None:
    for name in REPEATABLE:
        # Through the driver: a colon or percent sign in SQL text is no parameter of ours.
        with contextlib.closing(connection.connection.cursor()) as cursor:
            cursor.execute((_HERE / name).read_text(encoding="utf-8"))
    connection.execute(
        sa.dialects.postgresql.insert(tables.state)
        .values(key="repeatable", value=_digest())
        .on_conflict_do_update(index_elements=["key"], set_={"value": _digest(), "updated_at": sa.func.now()})
    )
