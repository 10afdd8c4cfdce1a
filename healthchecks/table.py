"""Check results as people read them: 80 columns, worst first."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from probing_cluster.core import records
from probing_cluster.healthchecks import site

WIDTH = 80

ORDER = (
    records.Outcome.FAIL,
    records.Outcome.ERROR,
    records.Outcome.WARN,
    records.Outcome.OK,
    records.Outcome.ABSENT,
)

_COLUMNS = (7, 22, 35, 13)


def number(value: float | None, unit: str | None) -> str:
    """A measured value or a threshold with its unit, short."""
    if value is None:
        return ""
    if unit == "bytes":
        for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if abs(value) >= size:
                return f"{value / size:.4g} {name}"
        return f"{value:.0f} B"
    if unit == "frac":
        return f"{value * 100:.4g} %"
    shown = f"{value:.0f}" if value == int(value) else f"{value:.4g}"
    word = {None: "", "": "", "count": "", "c": "°C", "gbps": "Gb/s", "per_hour": "/h", "per_day": "/d"}.get(
        unit, unit
    )
    return f"{shown} {word}".rstrip() if word is None or not word.startswith("/") else shown + word


def render(results: Sequence[records.CheckResult], *, every: bool = False) -> str:
    """A table of the results; absent checks are folded into one line unless `every`."""
    shown = [r for r in results if every or r.outcome is not records.Outcome.ABSENT]
    lines = _row("outcome", "check", "what was found", "limit")
    for result in sorted(shown, key=lambda r: (ORDER.index(r.outcome), r.name)):
        word = f"{result.outcome.value}{'*' if result.timed_out else ''}"
        lines += _row(word, result.name, result.message, number(result.threshold, result.unit))
    away = [r.name for r in results if r.outcome is records.Outcome.ABSENT]
    if away and not every:
        lines.append("")
        lines += textwrap.wrap(
            f"absent ({len(away)}; nothing here for them to judge): {', '.join(away)}",
            WIDTH,
            subsequent_indent="  ",
        )
    if any(r.timed_out for r in results):
        lines += ["", "* ended by its deadline"]
    return "\n".join(line.rstrip() for line in lines)


def _row(*cells: str) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width, break_long_words=True, break_on_hyphens=False) or [""]
        for cell, width in zip(cells, _COLUMNS, strict=True)
    ]
    height = max(len(column) for column in wrapped)
    return [
        " ".join(
            (column[i] if i < len(column) else "").ljust(width)
            for column, width in zip(wrapped, _COLUMNS, strict=True)
        )
        for i in range(height)
    ]


def explain(name: str, rows: Sequence[tuple[str, str]]) -> str:
    """A heading and its labelled paragraphs, wrapped."""
    lines = [name]
    for label, text in rows:
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"  {label:<11} ", subsequent_indent=" " * 14, break_on_hyphens=False
        )
    return "\n".join(lines)


def listing(plans: Sequence[site.CheckPlan]) -> str:
    """Every check in one table: whether it is on, how bad a failure is, and what it proves."""
    lines = [f"{'check':<23}{'on':<4}{'severity':<9}proves"]
    for plan in plans:
        head = f"{plan.check.name:<23}{'yes' if plan.enabled else 'no':<4}{plan.severity.value:<9}"
        lines += textwrap.wrap(
            head + plan.check.proves, WIDTH, subsequent_indent=" " * 36, break_on_hyphens=False
        )
    return "\n".join(lines)
