"""The fleet in a terminal: one screen in words, and the tables for who asks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from probing_cluster.control_plane.terminal import table
from probing_cluster.reports.fleet import column_heads, fleet_words

WIDTH = 100
MOST_ROWS = 40
"""Rows of a table on a screen; `--json` has all."""
_ABOUT = ("since", "until", "cluster", "partition", "users")


def summary(figures: Mapping[str, fleet_words.Figure], cluster: str) -> str:
    """Every figure's sentences, a paragraph each, under what they are about."""
    first = next(iter(figures.values()), {})
    lines = [f"{cluster}, {_about(first)}", *textwrap.wrap(fleet_words.begin(figures), WIDTH), ""]
    for name, figure in figures.items():
        if not fleet_words.is_of_the_cluster(name, figure):
            continue
        paragraph = " ".join(fleet_words.sentences(name, figure))
        lines += textwrap.wrap(paragraph, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(
        [*lines, "", "tables: probing-ctl fleet --tables, or one: probing-ctl fleet FIGURE (--help)"]
    )


def one(name: str, meaning: str, figure: fleet_words.Figure) -> str:
    """A figure as its sentences and its tables."""
    lines = [f"{name}: {meaning}", _about(figure), *textwrap.wrap(fleet_words.begin({name: figure}), WIDTH)]
    lines += textwrap.wrap(" ".join(fleet_words.sentences(name, figure)), WIDTH)
    for value in figure.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += ["", _table(value)]
            if len(value) > MOST_ROWS:
                lines.append(f"and {len(value) - MOST_ROWS} more: probing-ctl fleet {name} --json")
    for key, value in figure.items():
        if isinstance(value, dict) and key not in _ABOUT:
            inner = {k: v for k, v in value.items() if k not in _ABOUT}
            lines += [
                f"{column_heads.head(key)}, {column_heads.head(k)}: {number(v)}" for k, v in inner.items()
            ]
    return "\n".join(lines)


def _about(figure: fleet_words.Figure) -> str:
    since, until = (str(figure.get(key))[:16].replace("T", " ") for key in ("since", "until"))
    words = [f"{since} to {until} UTC"]
    words += [f"cluster {figure['cluster']}"] if figure.get("cluster") else []
    words += [f"partition {figure['partition']}"] if figure.get("partition") else []
    words += [f"users {', '.join(figure['users'])}"] if figure.get("users") else []
    return "  ".join(words)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    rows = _flat(rows[:MOST_ROWS])
    keys = [key for key in rows[0] if any(row[key] not in (None, "") for row in rows)]
    heads = [column_heads.head(key).upper() for key in keys]
    numbers = {
        head
        for head, key in zip(heads, keys, strict=True)
        if all(isinstance(r[key], int | float | None) for r in rows)
    }
    cells = [[_cell(key, row[key]) for key in keys] for row in rows]
    return table.render(heads, cells, right=frozenset(numbers))


def _cell(key: str, value: Any) -> str:
    if key.endswith("_frac") and isinstance(value, float):
        return f"{value * 100:.3g} %"
    if isinstance(value, str) and len(value) > 18 and value[10:11] == "T" and value.endswith("Z"):
        return value[:16].replace("T", " ")
    return number(value)


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with a part of their own, the same in each, as columns beside the others: `measured low h`."""
    parts: dict[str, list[str]] = {}
    for head in rows[0]:
        found = {tuple(row[head]) for row in rows if isinstance(row[head], dict)}
        if len(found) == 1 and (names := found.pop()):
            parts[head] = list(names)
    return [
        {
            (f"{head}.{name}" if head in parts else head): (row[head] or {}).get(name)
            if head in parts
            else row[head]
            for head in row
            for name in parts.get(head, [""])
        }
        for row in rows
    ]


def number(value: Any) -> str:
    """Numbers short enough to compare, without exponents; what is not known is `-`."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {number(one)}" for name, one in value.items()) or "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _float(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.10f}".rstrip("0") if "e" in text else text
