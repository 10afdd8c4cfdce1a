"""Which rows a statement needs, as JSON that travels to the nodes and is decided there row by row.

A condition only spares the sending of rows: the asker filters what arrives once more, so one that keeps too much is
harmless. One that keeps too little would be wrong, therefore everything unknown here is refused where it is made.

    {"op": "and" | "or", "of": [condition, …]}     {"op": "not", "of": [condition]}
    {"op": "=" | "!=" | "<" | "<=" | ">" | ">=", "column": name, "value": constant}
    {"op": "in", "column": name, "values": [constant, …]}     {"op": "null" | "not null", "column": name}

Constants are JSON's; instants are integers, nanoseconds since 1970. The logic is SQL's: with null, neither true nor false.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probing_cluster.core import errors

Condition = Mapping[str, Any]
Decide = Callable[[Mapping[str, Any]], bool | None]

COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MAX_DEPTH = 32
MAX_VALUES = 10_000


def columns_in(condition: Condition | None) -> set[str]:
    """The columns that a condition looks at."""
    if condition is None:
        return set()
    inner: set[str] = set().union(*(columns_in(c) for c in condition.get("of") or ()))
    return inner | {str(condition["column"])} if "column" in condition else inner


def decider(condition: Condition | None) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a row is needed; raises MalformedInput where the condition is none of ours."""
    if condition is None:
        return lambda _row: True
    decide = _decider(condition, 0)

    def needed(row: Mapping[str, Any]) -> bool:
        try:
            return decide(row) is True
        except TypeError:
            return True  # text against a number: the asker decides

    return needed


def may_hold(condition: Condition | None, known: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a row can fulfil it whose columns in `known` have one of those values, and the others any."""
    return condition is None or _outcomes(condition, known)[0]


def _outcomes(condition: Condition, known: Mapping[str, Sequence[Any]]) -> tuple[bool, bool]:
    """(it can hold, it can fail)."""
    op, inner = condition.get("op"), [_outcomes(c, known) for c in condition.get("of") or ()]
    if op == "and":
        return all(can for can, _ in inner), any(fails for _, fails in inner)
    if op == "or":
        return any(can for can, _ in inner), all(fails for _, fails in inner)
    if op == "not":
        return inner[0][1], inner[0][0]
    column = str(condition.get("column"))
    if column not in known:
        return True, True
    decide = decider(condition)
    found = [decide({column: value}) for value in known[column]]
    return any(found), not all(found)


def _decider(condition: Condition, depth: int) -> Decide:
    if depth > MAX_DEPTH or not isinstance(condition, Mapping):
        raise errors.MalformedInput("a condition is nested too deeply or is no object")
    op, column = condition.get("op"), condition.get("column")
    if op in ("and", "or", "not"):
        inner = [_decider(c, depth + 1) for c in condition.get("of") or ()]
        if not inner or (op == "not" and len(inner) != 1):
            raise errors.MalformedInput(f"a condition {op!r} of {len(inner)}")
        return _not(inner[0]) if op == "not" else _all(inner) if op == "and" else _any(inner)
    if not isinstance(column, str):
        raise errors.MalformedInput(f"a condition {op!r} without a column")
    if op == "null":
        return lambda row: row.get(column) is None
    if op == "not null":
        return lambda row: row.get(column) is not None
    if op == "in":
        values = condition.get("values")
        if not isinstance(values, list) or len(values) > MAX_VALUES:
            raise errors.MalformedInput("a condition 'in' without a list of values")
        return _in(column, values)
    if isinstance(op, str) and op in COMPARE and "value" in condition:
        return _compare(column, COMPARE[op], condition["value"])
    raise errors.MalformedInput(f"no such condition: {op!r}")


def _compare(column: str, compare: Callable[[Any, Any], bool], value: Any) -> Decide:
    def decide(row: Mapping[str, Any]) -> bool | None:
        found = row.get(column)
        if found is None or value is None:
            return None
        if isinstance(found, float) and math.isnan(found):
            return compare(1, 0)  # NaN is greater than every number, as the asker has it
        return compare(found, value)

    return decide


def _in(column: str, values: list[Any]) -> Decide:
    known = [v for v in values if v is not None]

    def decide(row: Mapping[str, Any]) -> bool | None:
        found = row.get(column)
        if found is None:
            return None
        return True if found in known else (False if len(known) == len(values) else None)

    return decide


def _not(inner: Decide) -> Decide:
    def decide(row: Mapping[str, Any]) -> bool | None:
        found = inner(row)
        return None if found is None else not found

    return decide


def _all(inner: list[Decide]) -> Decide:
    def decide(row: Mapping[str, Any]) -> bool | None:
        found = [decide_one(row) for decide_one in inner]
        return False if False in found else None if None in found else True

    return decide


def _any(inner: list[Decide]) -> Decide:
    def decide(row: Mapping[str, Any]) -> bool | None:
        found = [decide_one(row) for decide_one in inner]
        return True if True in found else None if None in found else False

    return decide
