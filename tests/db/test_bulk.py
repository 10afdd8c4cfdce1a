"""Bulk loads give the same rows as the slow ways, as often as they are repeated."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pytest
import sqlalchemy as sa

from probing_cluster.core import errors, records
from probing_cluster.db import arrow, bulk, delivery, rows, tables
from probing_cluster.db import store as store_module
from tests import unjudged

Make = Callable[..., Any]


def test_attempts_in_bulk(
    store: store_module.Store,
    make_attempt: Make,
    full_record: Callable[[type[Any]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records in several batches, with one given twice, are merged like `upsert_attempts` does; the new ones are counted."""
    monkeypatch.setattr(bulk, "BATCH_ROWS", 3)
    attempts = [make_attempt(job_id=n, run_key=str(n)) for n in range(1, 8)] + [
        full_record(records.JobAttempt)
    ]
    store.upsert_attempts([dataclasses.replace(attempts[0], gpus={"n1": ("a",)})])
    assert bulk.load_attempts(store.url, [*attempts, attempts[0]]) == 7, "one was there"
    assert bulk.load_attempts(store.url, attempts) == 0
    attempts[0] = dataclasses.replace(attempts[0], gpus={"n1": ("a",)})
    assert sorted(store.attempts(), key=lambda a: a.job_id) == attempts


def test_an_attempt_given_twice_is_merged_twice(store: store_module.Store, make_attempt: Make) -> None:
    """Two days' exports in one load: the first shows the job running, the second its end, without a column of the first."""
    ended = make_attempt(n_cpus=None)
    running = dataclasses.replace(ended, state="RUNNING", end_at=None, exit_code=None, n_cpus=8)
    for given in ([running, ended], [ended, running]):
        with store.engine.begin() as connection:
            connection.execute(sa.delete(tables.job_attempt))
        assert bulk.load_attempts(store.url, given) == 1
        assert store.attempts() == [dataclasses.replace(ended, n_cpus=8)]


def test_events_in_bulk(
    store: store_module.Store, make_event: Make, full_record: Callable[[type[Any]], Any]
) -> None:
    """Events enter once each, whether by delivery or in bulk, as records or as Arrow, and re-open verdicts."""
    events = [make_event(at=make_event().at - timedelta(days=n)) for n in range(100)] + [
        full_record(records.HealthEvent)
    ]
    delivery.Delivery(store.url, "c", "n1").deliver(events=events[:10])
    assert bulk.load_events(store.url, events) == 91
    assert bulk.load_events(store.url, [arrow.table(records.HealthEvent, [*events, make_event()])]) == 1
    found = {e.event_id: e for e in store.events()}
    assert len(found) == 102
    assert all(found[e.event_id] == e for e in events)


def test_bulk_events_reopen(
    store: store_module.Store, make_attempt: Make, make_verdict: Make, make_event: Make
) -> None:
    """Imported evidence inside a judged attempt's window has it judged again."""
    attempt = make_attempt()
    store.upsert_attempts([attempt])
    store.save_verdicts([make_verdict(attempt)])
    bulk.load_events(store.url, [make_event(at=attempt.end_at)])
    assert unjudged.attempts(store) == [attempt]


@pytest.mark.parametrize("cls", tables.RECORDS)
def test_arrow_reads_what_it_declares(
    cls: type[Any],
    store: store_module.Store,
    full_record: Callable[[type[Any]], Any],
    bare_record: Callable[[type[Any]], Any],
) -> None:
    """Rows read through ADBC have the declared Arrow types and equal the records' own table."""
    table = tables.BY_RECORD[cls]
    names = ", ".join(f'"{name}"' for name in rows.names(cls))
    for record in (full_record(cls), bare_record(cls)):
        with store.engine.begin() as connection:
            connection.execute(sa.delete(table))
            connection.execute(sa.insert(table), [rows.to_row(record)])
        with arrow.reading(store.url, f"SELECT {names} FROM probing.{table.name}") as reader:
            read = reader.read_all()
        wanted = arrow.table(cls, [record])
        assert [(f.name, f.type) for f in read.schema] == [(f.name, f.type) for f in wanted.schema]
        for name in wanted.schema.names:
            if wanted.schema.field(name).type != pa.json_(pa.string()):
                assert read.column(name).to_pylist() == wanted.column(name).to_pylist(), name


def test_schemas_carry_their_meaning() -> None:
    """A Parquet file written from a record's schema explains its columns."""
    schema = arrow.schema(records.HealthEvent)
    assert schema.field("kind").metadata[b"doc"].decode().startswith("what sort of fact")
    assert not schema.field("event_id").nullable
    assert schema.field("job_id").nullable


def test_parameters_reach_the_query(store: store_module.Store, make_attempt: Make) -> None:
    """Values travel as parameters, never as text of the query."""
    store.upsert_attempts([make_attempt(user="o'brien"), make_attempt(job_id=2)])
    with arrow.reading(
        store.url, 'SELECT job_id FROM probing.job_attempt WHERE "user" = $1', ["o'brien"]
    ) as reader:
        assert reader.read_all().to_pydict() == {"job_id": [1]}


def test_the_types_of_a_database_are_read_once(
    store: store_module.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens a connection: to ask for them costs more than most queries."""
    made: list[str] = []
    database = arrow._Database
    monkeypatch.setattr(arrow, "_Database", lambda **given: made.append(given["uri"]) or database(**given))
    arrow._database.cache_clear()
    with arrow.reading(store.url, "SELECT 1 AS n") as reader:
        reader.read_all()
    for _ in range(2):
        with contextlib.closing(arrow.ArrowReader(store.url)) as kept:
            assert kept.table("SELECT 1 AS n").to_pydict() == {"n": [1]}
    assert made == [store.url]


@pytest.mark.parametrize(
    "query", ["SELECT no_such_column FROM probing.job_attempt", "SELECT 1 FROM probing.no_such_table"]
)
def test_a_database_of_an_older_version_is_told_to_be_upgraded(store: store_module.Store, query: str) -> None:
    """What our queries name and the database lacks came with a later version; a mistake stays one."""
    with (
        pytest.raises(errors.DatabaseUnavailable, match="probing-ctl db upgrade"),
        arrow.reading(store.url, query),
    ):
        pass
    with pytest.raises(adbc.ProgrammingError), arrow.reading(store.url, "SELEC 1"):
        pass


def test_no_server_is_unavailable(tmp_path: Any) -> None:
    """A server that is not there is our error, with the driver's as cause."""
    with (
        pytest.raises(errors.DatabaseUnavailable),
        arrow.reading(f"postgresql://x@/y?host={tmp_path}", "SELECT 1"),
    ):
        pass
