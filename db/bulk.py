"""Millions of rows at once: Arrow into a temporary table, then one merge per batch.

For imports and backfill. Each batch is a transaction of its own and may be repeated: attempts
are merged as `upsert_attempts` does, events enter once each as through the delivery function.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import records
from probing_cluster.db import arrow, rows, tables
from probing_cluster.db.store import attempt_merge
from probing_cluster.db.store import base as store_base

BATCH_ROWS = 50_000
_ATTEMPT_KEY = ("cluster", "job_id", "submit_at")
_MERGE_EVENTS = (Path(__file__).parent / "bulk_events.sql").read_text(encoding="utf-8")


def load_attempts(uri: str, attempts: Iterable[records.JobAttempt] | Iterable[Any]) -> int:
    """Merge attempts, given as records or as Arrow tables or batches of their schema; how many were new."""
    incoming = _incoming(records.JobAttempt)
    key = [incoming.selected_columns[name] for name in _ATTEMPT_KEY]
    once = incoming.prefix_with(f"DISTINCT ON ({', '.join(_ATTEMPT_KEY)})").order_by(*key)
    # Postgres stamps the row that an upsert found and changed with its transaction; one that it made has none.
    merge: sa.ClauseElement = attempt_merge.statement(once).returning(
        sa.literal_column("xmax = 0").label("is_new")
    )
    counted = f"WITH merged AS ({_compiled(merge)}) SELECT count(*) FILTER (WHERE is_new) FROM merged"  # noqa: S608 - our own statement
    return sum(_load(uri, records.JobAttempt, attempts, counted)[1])


def load_events(uri: str, events: Iterable[records.HealthEvent] | Iterable[Any]) -> int:
    """Store events, given as records or as Arrow tables or batches of their schema; how many were new."""
    return sum(_load(uri, records.HealthEvent, events, _MERGE_EVENTS)[1])


def load_run_accounts(uri: str, accounts: Iterable[Any]) -> int:
    """Store run accounts, given as Arrow tables of their schema; a run's newer account replaces its older. How many."""
    merge = _compiled(store_base.upsert(tables.run_account, _incoming(records.RunAccount)))
    return _load(uri, records.RunAccount, accounts, merge)[0]


def _incoming(cls: type[Any]) -> sa.Select[Any]:
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in rows.names(cls)]
    return sa.select(*sa.table("incoming", *columns).c)


def _compiled(statement: sa.ClauseElement) -> str:
    dialect = pg.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's factory is not annotated
    return str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def _load(uri: str, cls: type[Any], source: Iterable[Any], merge: str) -> tuple[int, list[int]]:
    name, n_rows, answers = tables.table_name(cls), 0, []
    quoted = ", ".join(f'"{column}"' for column in rows.names(cls))
    batches = _tables(cls, source)
    first = next(batches, None)
    if first is None:  # mostly, where a service asks every few seconds: no connection is made for it
        return 0, []
    with arrow.connected(uri) as connection, connection.cursor() as cursor:
        for batch in itertools.chain([first], batches):
            with arrow.transaction(connection):
                # Gone with its transaction: behind PgBouncer the next one may be on another server.
                cursor.execute(
                    f"CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT {quoted} FROM probing.{name} WHERE false"  # noqa: S608 - our own names
                )
                cursor.adbc_ingest("incoming", batch, mode="append", temporary=True)
                cursor.execute(merge)
                answers += [row[0] for row in cursor.fetchall()] if cursor.description else []
            n_rows += batch.num_rows
    return n_rows, answers


def _tables(cls: type[Any], source: Iterable[Any]) -> Iterator[Any]:
    """The source as Arrow tables of a bounded size."""
    for is_record, group in itertools.groupby(source, key=lambda item: isinstance(item, cls)):
        if not is_record:
            yield from group
            continue
        for batch in _batches(cls, group):
            yield arrow.table(cls, batch)


def _batches(cls: type[Any], group: Iterable[Any]) -> Iterator[list[Any]]:
    """Records in batches; an attempt that is given twice is merged twice, in order: one of its rows would be lost in one batch."""
    key_of = operator.attrgetter(*_ATTEMPT_KEY) if cls is records.JobAttempt else None
    batch, keys = list[Any](), set[Any]()
    for item in group:
        key = key_of(item) if key_of is not None else len(batch)
        if len(batch) >= BATCH_ROWS or key in keys:
            yield batch
            batch, keys = [], set()
        batch.append(item)
        keys.add(key)
    if batch:
        yield batch
