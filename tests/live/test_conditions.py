"""Conditions decided on a node are SQL's: against SQLite on the same rows.

DataFusion 55 is no judge of them: its optimizer makes `a IN (1) AND a IN (2)` false where `a` is null.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core import errors
from probing_cluster.live import conditions

ROWS: list[dict[str, Any]] = [
    {"a": a, "b": b, "t": t}
    for a in (None, -1, 0, 2)
    for b in (None, 0.5, 2.0)
    for t in (None, "", "x", "é'x")
]
CONSTANTS = {
    "a": st.sampled_from([-1, 0, 1, 2]),
    "b": st.sampled_from([0.5, 1.0, 2.0]),
    "t": st.sampled_from(["", "x", "é'x"]),
}


@st.composite
def leaves(draw: st.DrawFn) -> dict[str, Any]:
    column = draw(st.sampled_from(["a", "b", "t"]))
    kind = draw(st.sampled_from(["compare", "in", "null", "not null"]))
    if kind == "compare":
        return {
            "op": draw(st.sampled_from(list(conditions.COMPARE))),
            "column": column,
            "value": draw(CONSTANTS[column]),
        }
    if kind == "in":
        return {
            "op": "in",
            "column": column,
            "values": draw(st.lists(CONSTANTS[column], min_size=1, max_size=3)),
        }
    return {"op": kind, "column": column}


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(lambda c: {"op": "not", "of": [c]}, inner),
        st.builds(
            lambda op, c: {"op": op, "of": c},
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=6,
)


def sql_of(condition: dict[str, Any]) -> str:
    op = condition["op"]
    if op in ("and", "or"):
        return "(" + f" {op} ".join(sql_of(c) for c in condition["of"]) + ")"
    if op == "not":
        return f"(NOT {sql_of(condition['of'][0])})"
    if op in ("null", "not null"):
        return f"({condition['column']} IS {op.upper()})"
    if op == "in":
        return f"({condition['column']} IN ({', '.join(map(literal, condition['values']))}))"
    return f"({condition['column']} {op} {literal(condition['value'])})"


def literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@given(CONDITIONS)
def test_a_node_keeps_the_rows_that_sql_keeps(condition: dict[str, Any]) -> None:
    """With nulls, not, in, and or; on every combination of a few values."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE r (a INTEGER, b REAL, t TEXT)")
        database.executemany("INSERT INTO r VALUES (:a, :b, :t)", ROWS)
        kept = database.execute(f"SELECT a, b, t FROM r WHERE {sql_of(condition)}").fetchall()
    wanted = [dict(zip("abt", row, strict=True)) for row in kept]
    needed = conditions.decider(condition)
    key = lambda row: tuple(map(str, row.values()))  # noqa: E731
    assert sorted(filter(needed, ROWS), key=key) == sorted(wanted, key=key)


@given(CONDITIONS)
def test_what_may_hold_is_never_less_than_what_holds(condition: dict[str, Any]) -> None:
    """A table that is asked whether it can matter at all must not be left out while one of its rows would be kept."""
    for row in filter(conditions.decider(condition), ROWS):
        assert conditions.may_hold(condition, {"a": [row["a"]]})


def test_what_cannot_matter_is_left_out() -> None:
    """C frames are negative: a statement about depth 0 spares them."""
    known = {"depth": range(-100, 0), "kind": ("c",)}
    assert not conditions.may_hold({"op": "=", "column": "depth", "value": 0}, known)
    assert not conditions.may_hold({"op": "not", "of": [{"op": "=", "column": "kind", "value": "c"}]}, known)
    assert conditions.may_hold({"op": "<=", "column": "depth", "value": 0}, known)
    assert conditions.may_hold(None, known)


@pytest.mark.parametrize(
    "condition",
    [
        {"op": "like", "column": "a", "value": 1},
        {"op": "="},
        {"op": "=", "column": "a"},
        {"op": "in", "column": "a", "values": 3},
        {"op": "and", "of": []},
        {"op": "not", "of": []},
        {"op": ["="], "column": "a", "value": 1},
        {"op": "and", "of": ["x"]},
    ],
)
def test_a_condition_that_is_none_is_refused(condition: dict[str, Any]) -> None:
    with pytest.raises(errors.MalformedInput):
        conditions.decider(condition)


def test_a_condition_nested_for_ever_is_refused() -> None:
    condition: dict[str, Any] = {"op": "null", "column": "a"}
    for _ in range(conditions.MAX_DEPTH + 1):
        condition = {"op": "not", "of": [condition]}
    with pytest.raises(errors.MalformedInput):
        conditions.decider(condition)


def test_types_that_do_not_compare_are_the_askers() -> None:
    """Also below a NOT: sparing such a row would be wrong."""
    odd = {"op": "<", "column": "t", "value": 3}
    assert conditions.decider(odd)({"t": "x"})
    assert conditions.decider({"op": "not", "of": [odd]})({"t": "x"})
