"""The schema is what the records say, in every database we migrate."""

from __future__ import annotations

import dataclasses
from typing import Any

import alembic.autogenerate
import alembic.migration
import pytest
import sqlalchemy as sa

from probing_cluster.db import engines, migrate, partitions, tables


def _differences(url: str, metadata: sa.MetaData = tables.metadata) -> list[Any]:
    engine = engines.make(url)
    try:
        with engine.connect() as connection:
            options = migrate.autogenerate_options(connection)
            context = alembic.migration.MigrationContext.configure(connection, opts=options)
            return list(alembic.autogenerate.compare_metadata(context, metadata))
    finally:
        engine.dispose()


def test_migrations_equal_the_derived_schema(postgres_url: str) -> None:
    """All migrations applied give exactly the derived schema, comments included, whatever months have partitions."""
    partitions.maintain(postgres_url, retention_days=400)
    assert _differences(postgres_url) == []


def test_a_drifted_comment_is_seen(postgres_url: str) -> None:
    """The comparison is not blind: one changed comment and one missing column are both found."""
    drifted = sa.MetaData(schema=tables.SCHEMA)
    for table in tables.metadata.tables.values():
        table.to_metadata(drifted)
    event = drifted.tables["probing.health_event"]
    event.c.kind.comment = "something else"
    event.append_column(sa.Column("new_fact", sa.Text()))
    assert {
        entry[0][0] if isinstance(entry, list) else entry[0] for entry in _differences(postgres_url, drifted)
    } == {
        "modify_comment",
        "add_column",
    }


def test_every_table_and_column_is_explained(postgres_url: str) -> None:
    """In the database itself every table and column of ours carries a comment."""
    query = """
        SELECT c.relname, a.attname FROM pg_class c
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'probing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname <> 'alembic_version'
          AND (coalesce(obj_description(c.oid), '') = '' OR coalesce(col_description(c.oid, a.attnum), '') = '')"""
    engine = engines.make(postgres_url)
    with engine.connect() as connection:
        assert connection.execute(sa.text(query)).all() == []
        assert connection.scalar(sa.text("SELECT obj_description('probing.health_event'::regclass)"))
    engine.dispose()


@pytest.mark.parametrize("cls", tables.RECORDS)
def test_a_column_per_field(cls: type[Any]) -> None:
    """A record's table has its fields, in order, nullable exactly where None is allowed."""
    table = tables.BY_RECORD[cls]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    assert [c.name for c in table.columns][: len(fields)] == list(fields)
    for name, item in fields.items():
        assert table.c[name].comment == item.metadata["doc"]
        assert table.c[name].nullable == ("| None" in str(item.type)), name


def test_check_now_has_the_columns_of_check_result() -> None:
    """The latest results and their history are rows of one shape, so the delivery function can copy them."""
    assert [c.name for c in tables.check_now.columns] == [c.name for c in tables.check_result.columns]
