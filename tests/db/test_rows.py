"""Records survive the way into Postgres and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import sqlalchemy as sa

from probing_cluster.db import plain, rows, tables
from probing_cluster.db import store as store_module


@pytest.mark.parametrize("cls", tables.RECORDS)
def test_full_and_bare_records_come_back_equal(
    cls: type[Any],
    full_record: Callable[[type[Any]], Any],
    bare_record: Callable[[type[Any]], Any],
    store: store_module.Store,
) -> None:
    """Every field of every record, set or left at its default, comes back as it went in."""
    table = tables.BY_RECORD[cls]
    for record in (full_record(cls), bare_record(cls)):
        with store.engine.begin() as connection:
            connection.execute(sa.delete(table))
            connection.execute(sa.insert(table), [rows.to_row(record)])
            found = connection.execute(sa.select(table)).mappings().one()
        assert rows.from_row(cls, found) == record


@hypothesis.given(st.text(st.characters(exclude_categories=[]), max_size=30))
def test_text_is_always_storable(value: str) -> None:
    """Any Python text becomes valid UTF-8 without NUL, and good text is left alone."""
    stored = plain.text(value)
    assert "\0" not in stored
    stored.encode("utf-8")
    if "\0" not in value and not any("\ud800" <= ch <= "\udfff" for ch in value):
        assert stored == value


def test_numbers_that_json_has_not_become_null() -> None:
    """A reading that is not finite is no reading."""
    assert plain.dumps({"a": [float("nan"), 1.5], "b": float("inf")}) == '{"a":[null,1.5],"b":null}'
