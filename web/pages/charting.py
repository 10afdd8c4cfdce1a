"""Small drawings of the pages: a node's timeline, a question's rows, a tree of stacks in lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from probing_cluster.reports.charts import charts, svg
from probing_cluster.reports.fleet import fleet_page
from probing_cluster.web import documents

WIDTH, LANE = 960.0, 26.0
LEFT = 110.0
LANES = ("faults", "checks", "tests", "jobs", "decisions", "notes")
MOST_ROWS = 40
MOST_LINES = 200


def _lane(what: str) -> str:
    first = what.split(" ", 1)[0]
    if first == "event":
        return "faults"
    if first in ("check", "test"):
        return f"{first}s"
    if first == "attempt":
        return "jobs"
    return (
        "decisions"
        if first in ("drain", "requeue", "resume", "refuse", "restart", "exclude", "repair")
        else "notes"
    )


def node_timeline(node: str, moments: Sequence[documents.Moment], since: datetime, until: datetime) -> Markup:
    """A lane for each kind of thing, a mark for each; the table below says all of it in words."""
    length = max((until - since).total_seconds(), 1.0)

    def x(at: datetime) -> float:
        share = (at - since).total_seconds() / length
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - 10)

    drawn = []
    for number, lane in enumerate(LANES):
        y = 14 + number * LANE
        drawn.append(svg.element("text", text=lane, x=4, y=y + 4, **{"class": "name"}))
        drawn.append(svg.element("line", x1=LEFT, x2=WIDTH - 10, y1=y, y2=y, **{"class": "grid"}))
    for moment in moments:
        y = 14 + LANES.index(_lane(moment.what)) * LANE
        kind = moment.severity if moment.severity in ("high", "low", "info") else "none"
        words = f"{moment.at:%Y-%m-%d %H:%M:%S}Z {moment.what}: {moment.message[:160]}"
        drawn.append(
            svg.titled(
                words,
                svg.element("circle", cx=x(moment.at), cy=y, r=5, **{"class": f"event {kind}"}),
            )
        )
    bottom = 14 + len(LANES) * LANE
    for number in range(5):
        at = since + (until - since) * number / 4
        anchor = "start" if number == 0 else "end" if number == 4 else "middle"
        label = svg.element(
            "text", text=f"{at:%m-%d %H:%M}Z", x=x(at), y=bottom, **{"text-anchor": anchor, "class": "tick"}
        )
        drawn.append(label)
    title = (
        f"Timeline of {node}: {len(moments)} things from {since:%Y-%m-%d %H:%M}Z to {until:%Y-%m-%d %H:%M}Z"
    )
    options = {
        "class": "timeline",
        "viewBox": f"0 0 {WIDTH:g} {bottom + 8:g}",
        "role": "img",
        "aria-label": title,
    }
    return Markup(svg.element("svg", *drawn, **options))  # noqa: S704 - svg escapes its own values


def number_columns(rows: documents.Rows) -> set[int]:
    """The columns whose first value is a number."""
    first = rows.rows[0] if rows.rows else []
    return {n for n, v in enumerate(first) if isinstance(v, int | float) and not isinstance(v, bool)}


def of_rows(rows: documents.Rows) -> Markup | str:
    """Bars of the last column of numbers, each with the first column's word, or, where only that has numbers, with the second's."""
    if not rows.rows or len(rows.heads) < 2:
        return ""
    numbers = number_columns(rows)
    if not numbers:
        return ""
    number = max(numbers)
    word = 0 if number else 1
    given = [
        charts.ChartRow(label="–" if row[word] is None else str(row[word])[:40], values=(float(row[number]),))
        for row in rows.rows[:MOST_ROWS]
        if isinstance(row[number], int | float) and row[number] >= 0
    ]
    if not given:
        return ""
    title = f"{rows.heads[number]} by {rows.heads[word]}"
    drawn = charts.bars("rows", title, (rows.heads[number],), given, fleet_page.number)
    return Markup(drawn)  # noqa: S704 - the chart escapes its own values


def tree_lines(tree: Mapping[str, Any], depth: int = 0) -> list[tuple[int, str, str]]:
    """A merged tree of stacks as (depth, ranks, function) lines, at most MOST_LINES."""
    ranks = str(tree.get("ranks", ""))
    found = [(depth + n, ranks if n == 0 else "", str(f)) for n, f in enumerate(tree.get("frames", ()))]
    for fork in tree.get("forks", ()):
        if len(found) >= MOST_LINES:
            break
        found += tree_lines(fork, depth + len(tree.get("frames", ())))
    return found[:MOST_LINES]
