"""What of a statement the nodes can do: columns, conditions and limits, from DataFusion's optimized plan.

A condition only spares the sending of rows: whatever stands here, the asker filters once more what DataFusion handed over.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import errors
from probing_cluster.live import conditions
from probing_cluster.live.conditions import Condition
from probing_cluster.live.table import Scan

_COMPARISONS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, kw_only=True)
class PlannedScan:
    """What one reading of a table wants, as far as the plan tells."""

    columns: frozenset[str]
    """Those of its condition included."""
    condition: Condition | None
    limit: int | None


class NotPushable(Exception):
    """An expression that is not decided on the nodes."""


def read(plan: Any, default_schema: str) -> Mapping[str, Sequence[PlannedScan | None]]:
    """By full name, each reading of a table that the plan shows; None for one whose filters are not understood."""
    found: dict[str, list[PlannedScan | None]] = defaultdict(list)
    for scan in _scans(plan):
        _catalog, schema, name = scan.fqn()
        found[f"{schema or default_schema}.{name}"].append(_wanted(scan))
    return found


def together(
    readings: Sequence[PlannedScan | None], planned: Sequence[Sequence[str] | None]
) -> tuple[tuple[str, ...] | None, Condition | None, int | None]:
    """(columns, condition, limit) of one request that serves all readings of a table; None for all, always, no limit.

    `planned`: the columns of every reading that DataFusion has planned. Where these are more than the plan shows
    (a scalar subquery reads the table too), nothing is known about the others.
    """
    if len(readings) != len(planned) or any(r is None for r in readings) or any(p is None for p in planned):
        return None, None, None
    known = [r for r in readings if r is not None]
    columns = set().union(*(r.columns for r in known), *(p or () for p in planned))
    alone = known[0] if len(known) == 1 else None
    limit = alone.limit if alone is not None else None
    if any(r.condition is None for r in known):
        return tuple(sorted(columns)), None, limit
    found = [r.condition for r in known if r.condition is not None]
    return tuple(sorted(columns)), found[0] if len(found) == 1 else {"op": "or", "of": found}, limit


def _scans(plan: Any) -> Iterator[Any]:
    variant = plan.to_variant()
    if hasattr(variant, "fqn") and hasattr(variant, "filters"):
        yield variant
    for inner in plan.inputs():
        yield from _scans(inner)


def _wanted(scan: Any) -> PlannedScan | None:
    try:
        filters = [_condition(f) for f in scan.filters()]
    except NotPushable:
        return None
    condition = None if not filters else filters[0] if len(filters) == 1 else {"op": "and", "of": filters}
    columns = {name for _, name in scan.projection()} | conditions.columns_in(condition)
    return PlannedScan(columns=frozenset(columns), condition=condition, limit=scan.fetch())


def _condition(expression: Any) -> Condition:
    variant = expression.to_variant()
    kind = type(variant).__name__
    if kind == "BinaryExpr":
        return _binary(variant)
    if kind == "Not":
        return {"op": "not", "of": [_condition(variant.expr())]}
    if kind in ("IsNull", "IsNotNull"):
        return {"op": "null" if kind == "IsNull" else "not null", "column": _column(variant.expr())}
    if kind == "InList":
        listed = {
            "op": "in",
            "column": _column(variant.expr()),
            "values": [_constant(v) for v in variant.list()],
        }
        return {"op": "not", "of": [listed]} if variant.negated() else listed
    if kind == "Column":
        return {"op": "=", "column": variant.name(), "value": True}
    raise NotPushable(kind)


def _binary(variant: Any) -> Condition:
    op = str(variant.op()).upper()
    if op in ("AND", "OR"):
        return {"op": op.lower(), "of": [_condition(variant.left()), _condition(variant.right())]}
    if op not in _COMPARISONS:
        raise NotPushable(op)
    sign, left, right = _COMPARISONS[op], variant.left(), variant.right()
    if type(left.to_variant()).__name__ == "Column":
        return {"op": sign, "column": _column(left), "value": _constant(right)}
    return {"op": _MIRRORED[sign], "column": _column(right), "value": _constant(left)}


def _column(expression: Any) -> str:
    variant = expression.to_variant()
    if type(variant).__name__ != "Column":
        raise NotPushable(type(variant).__name__)
    return str(variant.name())


def _constant(expression: Any) -> Any:
    if type(expression.to_variant()).__name__ != "Literal":
        raise NotPushable("no constant")
    value = expression.python_value()
    if type(value).__name__ == "TimestampScalar":
        # The nodes' columns hold nanoseconds, the database's microseconds; a constant has its column's type.
        if str(value.type) == "timestamp[us, tz=UTC]":
            return value.as_py().isoformat()
        if str(value.type) != "timestamp[ns, tz=UTC]":
            raise NotPushable(str(value.type))
        return value.value
    found = value.as_py() if hasattr(value, "as_py") else value
    if isinstance(found, float) and math.isnan(found):
        raise errors.UsageError("a column is not compared with NaN; write isnan(COLUMN)")
    if found is None or isinstance(found, bool | int | float | str):
        return found
    raise NotPushable(type(found).__name__)


def words(scan: Scan) -> str:
    """What a node is asked, a line each."""
    parts = [scan.table, f"columns: {', '.join(scan.columns) if scan.columns is not None else 'all'}"]
    if scan.condition is not None:
        parts.append(f"condition: {_words_of(scan.condition)}")
    if scan.limit is not None:
        parts.append(f"limit: {scan.limit}")
    return "\n  ".join(parts)


def _words_of(condition: Mapping[str, Any]) -> str:
    op = condition["op"]
    if op in ("and", "or"):
        return "(" + f" {op} ".join(_words_of(c) for c in condition["of"]) + ")"
    if op == "not":
        return f"not {_words_of(condition['of'][0])}"
    if op == "in":
        return f"{condition['column']} in {condition['values']}"
    if op in ("null", "not null"):
        return f"{condition['column']} is {op}"
    return f"{condition['column']} {op} {condition['value']!r}"
