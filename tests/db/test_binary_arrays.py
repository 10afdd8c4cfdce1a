"""Packed arrays are what the driver would have sent."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import hypothesis
import hypothesis.strategies as st
import psycopg
import pytest

from probing_cluster.db import binary_arrays
from probing_cluster.db import store as store_module

_SOME: dict[str, list[Any]] = {
    "text": ["", "a", None, "é\t\"'\\{}", "a", "x" * 5000],
    "uuid": [uuid.UUID(int=1), None, uuid.UUID(int=2**128 - 1)],
    "bigint": [0, -1, None, 2**63 - 1, -(2**63), 7, 7],
    "double precision": [0.0, -1.5, None, 1e308, float("inf"), 3],
    "timestamptz": [
        datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        None,
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
}


@pytest.mark.parametrize("kind", _SOME)
def test_the_server_reads_what_was_meant(kind: str, postgres_url: str) -> None:
    """Values of every kind, nulls and repetitions among them, arrive equal; a column of nulls arrives empty."""
    values = _SOME[kind]
    with psycopg.connect(postgres_url) as connection:
        for array, dumper in binary_arrays.DUMPERS.items():
            connection.adapters.register_dumper(array, dumper)
        array = binary_arrays.ARRAYS[kind]
        assert connection.execute("SELECT %b", [array(values)]).fetchone() == (values,)
        full = [v for v in values if v is not None]
        assert connection.execute("SELECT %b", [array(full)]).fetchone() == (full,)
        assert connection.execute("SELECT %b", [array([None] * 3)]).fetchone() == ([],)
        assert connection.execute("SELECT %b", [array([])]).fetchone() == ([],)


@hypothesis.given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1))
def test_every_element_has_its_place(values: list[int | None]) -> None:
    """The packed form has one entry per value, null ones marked."""
    raw = binary_arrays.pack("bigint", values)
    if all(v is None for v in values):
        assert raw == struct.pack("!iiI", 0, 0, 20)
    else:
        assert len(raw) == 20 + sum(4 if v is None else 12 for v in values)
        assert struct.unpack_from("!iiIi", raw) == (1, int(None in values), 20, len(values))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("bigint", 2**63), ("bigint", "1"), ("text", 5), ("text", "\ud800"), ("uuid", "x"), ("timestamptz", 0)],
)
def test_a_wrong_value_is_refused(kind: str, value: Any) -> None:
    """What a column cannot hold raises here, before anything is sent."""
    with pytest.raises((struct.error, AttributeError, TypeError, UnicodeError)):
        binary_arrays.pack(kind, [value])


def test_lists_go_as_arrays_of_their_kind(store: store_module.Store) -> None:
    """Each kind's list comes back as it was; a list of nothing and what is no list stay the driver's."""
    for kind, values in _SOME.items():
        assert isinstance(binary_arrays.of(values), binary_arrays.ARRAYS[kind])
        (row,) = store.rows(f"SELECT CAST(:values AS {kind}[]) AS v, '%' AS percent", {"values": values})
        assert row == {"v": values, "percent": "%"}
    for plain in ([], [None], [True], ("a",), "a", None):
        assert binary_arrays.of(plain) is plain
    (row,) = store.rows("SELECT 1 = ANY(:none) AS found, CAST(:n AS int) AS n", {"none": [], "n": 4})
    assert row == {"found": False, "n": 4}


def test_equal_numbers_keep_their_signs():
    """Without a null a column goes in one call; each value by itself, not as the first that it is equal to."""
    packed = binary_arrays.pack("double precision", [0.0, -0.0])
    assert packed[-12:] == struct.pack("!id", 8, -0.0)
