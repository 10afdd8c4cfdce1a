"""Charts as SVG: stacked bars and columns, points with intervals. Each names and describes itself in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from probing_cluster.core import records
from probing_cluster.reports.charts import svg

WIDTH = 960.0
_LEFT, _RIGHT, _TOP = 190.0, 60.0, 6.0
_ROW, _BAR = 28.0, 18.0
_PLOT = 220.0
_CHAR = 6.4
"""Width of a character of a tick's label, on average and a little more, px."""
_MARK_LEVELS, _MARK_LINE = 4, 14.0
_NOTHING = 1e-12
"""Values below this get no mark."""
_LEAST = 1.5
"""Least width of a bar that is not zero, px."""


@records.record
class ChartRow:
    """One bar or column: its name and its parts in the order of the series."""

    label: str = records.doc("its name")
    values: tuple[float, ...] = records.doc("one value per series, 0 or more")


@records.record
class Point:
    """One estimate with its interval; a part that is not known is None."""

    label: str = records.doc("its name")
    value: float | None = records.doc("the estimate")
    low: float | None = records.doc("lower end of its interval", default=None)
    high: float | None = records.doc("upper end of its interval", default=None)
    hollow: bool = records.doc("projected rather than measured", default=False)


Words = Callable[[float], str]
"""A value with its unit, as a person reads it."""


def bars(
    name: str,
    title: str,
    series: Sequence[str],
    rows: Sequence[ChartRow],
    words: Words,
    *,
    stacked: bool = True,
) -> str:
    """Horizontal bars; `series` name the parts, drawn end to end or one below the other."""
    most = _most(_length(row, stacked=stacked) for row in rows)
    per = _ROW if stacked else _BAR / 2 * len(series) + _ROW - _BAR
    bottom = _TOP + per * len(rows)
    scale = (WIDTH - _LEFT - _RIGHT) / most
    drawn = [_across(most, scale, bottom, words)]
    for n, row in enumerate(rows):
        drawn.append(_bar(row, series, _TOP + n * per, scale, words, stacked=stacked))
    return figure(name, title, _description(rows, series, words), bottom + 26, drawn)


@records.record
class Mark:
    """An instant on the axis of columns."""

    label: str = records.doc("the event")
    place: float = records.doc("where: 0 is the left edge of the first column, 1 its right edge, and so on")


_WIDEST_COLUMN = 72.0
"""Most width of a column, so that a single week does not fill the drawing."""


def columns(
    name: str,
    title: str,
    series: Sequence[str],
    rows: Sequence[ChartRow],
    words: Words,
    *,
    marks: Sequence[Mark] = (),
) -> str:
    """Stacked columns over time, left to right in the given order; marks are upright lines with a name."""
    most = _most(sum(row.values) for row in rows)
    # The names of marks stand above the columns: on them nobody could read them.
    floor = _TOP + min(len(marks), _MARK_LEVELS) * _MARK_LINE + _PLOT
    scale = _PLOT / most
    left, room = 70.0, WIDTH - 70.0 - 20.0
    step = room / max(1, len(rows))
    drawn = []
    for tick in ticks(most):
        y = floor - tick * scale
        line = svg.element("line", x1=left, x2=WIDTH - 20.0, y1=y, y2=y, class_="grid")
        drawn += [
            line,
            svg.element("text", text=words(tick), x=left - 8, y=y + 4, text_anchor="end", class_="tick"),
        ]
    every = -(-len(rows) // 12) or 1
    wide = min(step * 0.8, _WIDEST_COLUMN)
    for n, row in enumerate(rows):
        x, y = left + n * step, floor
        for at, value in enumerate(row.values):
            height = value * scale
            y -= height
            if value > 0:
                box = svg.element(
                    "rect", x=x + (step - wide) / 2, y=y, width=wide, height=height, class_=f"s{at % 8}"
                )
                drawn.append(svg.titled(f"{row.label}, {series[at]}: {words(value)}", box))
        if n % every == 0:
            drawn.append(
                svg.element(
                    "text", text=row.label, x=x + step / 2, y=floor + 16, text_anchor="middle", class_="tick"
                )
            )
    drawn += [_mark(mark, n, left + mark.place * step, floor) for n, mark in enumerate(marks)]
    described = "; ".join([_description(rows, series, words), *(f"mark: {m.label}" for m in marks)])
    return figure(name, title, described, floor + 26, drawn)


def _mark(mark: Mark, number: int, x: float, floor: float) -> str:
    """The names stand at different heights, so that neighbours can be read; left of the line near the right edge."""
    line = svg.element("line", x1=x, x2=x, y1=_TOP, y2=floor, class_="mark")
    left = x > WIDTH - 160.0
    text = svg.element(
        "text",
        text=_short(mark.label),
        x=x - 4 if left else x + 4,
        y=_TOP + 10 + number % _MARK_LEVELS * _MARK_LINE,
        text_anchor="end" if left else "start",
        class_="tick",
    )
    return svg.titled(mark.label, line, text)


@records.record
class HeatRow:
    """One row of a heat map."""

    label: str = records.doc("its name")
    cells: tuple[float | str | None, ...] = records.doc(
        "per column how much slower than usual (1 = as usual), a word for what failed, or nothing"
    )


_COLUMN, _HEAD = 92.0, 22.0
_BANDS = ((1.03, "h0"), (1.10, "h1"), (1.25, "h2"))
"""Upper limits of the first three colours of a cell; above the last it has the fourth."""


def heat(name: str, title: str, columns: Sequence[str], rows: Sequence[HeatRow]) -> str:
    """A grid of cells, each with its figure as text; colour adds nothing to the text."""
    width = max(WIDTH, _LEFT + _COLUMN * len(columns) + 10)
    drawn = [
        svg.element(
            "text",
            text=_short(head),
            x=_LEFT + (n + 0.5) * _COLUMN,
            y=_HEAD - 8,
            text_anchor="middle",
            class_="tick",
        )
        for n, head in enumerate(columns)
    ]
    for place, row in enumerate(rows):
        y = _HEAD + place * _ROW
        drawn.append(_row_name(row.label, y + _ROW / 2))
        for n, (column, cell) in enumerate(zip(columns, row.cells, strict=True)):
            if cell is not None:
                drawn.append(_heat_cell(f"{row.label}, {column}", cell, _LEFT + n * _COLUMN, y))
    words = "; ".join(
        f"{row.label}: "
        + ", ".join(f"{c} {_heat_words(v)}" for c, v in zip(columns, row.cells, strict=True) if v is not None)
        for row in rows
    )
    return figure(name, title, words, _HEAD + _ROW * len(rows) + 6, drawn, width)


def _heat_cell(what: str, cell: float | str, x: float, y: float) -> str:
    kind = "hbad" if isinstance(cell, str) else next((k for most, k in _BANDS if cell <= most), "h3")
    shown = cell if isinstance(cell, str) else f"{cell:.2f}"
    box = svg.element("rect", x=x + 1, y=y + 1, width=_COLUMN - 2, height=_ROW - 2, rx=3, class_=kind)
    text = svg.element(
        "text", text=shown, x=x + _COLUMN / 2, y=y + _ROW / 2 + 4, text_anchor="middle", class_=f"{kind}t"
    )
    return svg.titled(f"{what}: {_heat_words(cell)}", box, text)


def _heat_words(cell: float | str) -> str:
    if isinstance(cell, str):
        return {"fail": "failed", "error": "gave no answer"}.get(cell, cell)
    return (
        "as usual" if abs(cell - 1) < 0.005 else f"{abs(cell - 1):.0%} {'slower' if cell > 1 else 'quicker'}"
    )


def points(name: str, title: str, rows: Sequence[Point], words: Words) -> str:
    """Estimates with whiskers on a logarithmic axis, one a row; hollow ones are projected."""
    known = [v for p in rows for v in (p.value, p.low, p.high) if v is not None and v > _NOTHING]
    low, high = (math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))) if known else (0, 1)
    high = max(high, low + 1)
    per_decade = (WIDTH - _LEFT - _RIGHT) / (high - low)
    bottom = _TOP + _ROW * len(rows)

    def x(value: float) -> float:
        return _LEFT + per_decade * (math.log10(max(value, 10.0**low)) - low)

    values = [10.0**power for power in range(low, high + 1)]
    drawn = [svg.element("line", x1=x(v), x2=x(v), y1=_TOP, y2=bottom, class_="grid") for v in values]
    drawn += _tick_labels([(x(v), words(v)) for v in values], bottom + 18)
    drawn += [_point(p, _TOP + (n + 0.5) * _ROW, x, words) for n, p in enumerate(rows)]
    return figure(name, title, "; ".join(_sentence(p, words) for p in rows), bottom + 28, drawn)


def _most(lengths: Iterable[float]) -> float:
    longest = max(lengths, default=0.0)
    return longest if longest > _NOTHING else 1.0


def ticks(most: float) -> Iterator[float]:
    """Round values from 0 up to `most`, a handful."""
    step = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    step *= next((f for f in (0.1, 0.2, 0.5, 1.0, 2.0) if most / (step * f) <= 6), 5.0)
    n = 0
    while n * step <= most * 1.0001:
        yield n * step
        n += 1


def _across(most: float, scale: float, bottom: float, words: Words) -> str:
    places = [(_LEFT + tick * scale, words(tick)) for tick in ticks(most)]
    marks = [svg.element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid") for x, _ in places]
    return svg.element("g", *marks, *_tick_labels(places, bottom + 18), aria_hidden="true")


def _tick_labels(places: Iterable[tuple[float, str]], y: float) -> list[str]:
    """The labels of the grid lines at `places`, within the drawing; a label that would touch its neighbour is left out."""
    drawn, free_from = [], 0.0
    for x, text in places:
        width = len(text) * _CHAR
        middle = min(x, WIDTH - width / 2)
        if middle - width / 2 < free_from:
            continue
        free_from = middle + width / 2 + _CHAR
        drawn.append(svg.element("text", text=text, x=middle, y=y, text_anchor="middle", class_="tick"))
    return drawn


def _row_name(label: str, y: float) -> str:
    """The row's label to the left of its bars; `y` is the row's middle."""
    return svg.element("text", text=_short(label), x=_LEFT - 10, y=y + 4, text_anchor="end", class_="name")


def _bar(
    row: ChartRow, series: Sequence[str], top: float, scale: float, words: Words, *, stacked: bool
) -> str:
    thick = _BAR if stacked else _BAR / 2
    x, y = _LEFT, top + (_ROW - _BAR) / 2
    parts = [_row_name(row.label, top + _ROW / 2)]
    for at, value in enumerate(row.values):
        if value > 0:
            width = max(value * scale, _LEAST)
            box = svg.element("rect", x=x, y=y, width=width, height=thick, class_=f"s{at % 8}")
            parts.append(svg.titled(f"{row.label}, {series[at]}: {words(value)}", box))
            x += width if stacked else 0.0
        y += 0.0 if stacked else thick
    return svg.element("g", *parts)


def _point(point: Point, y: float, x: Callable[[float], float], words: Words) -> str:
    parts = [_row_name(point.label, y)]
    if point.low is not None and point.high is not None and point.high > 0:
        ends = x(max(point.low, 0.0)), x(point.high)
        parts.append(svg.element("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_="whisker"))
        parts += [svg.element("line", x1=e, x2=e, y1=y - 5, y2=y + 5, class_="whisker") for e in ends]
    if point.value is not None and point.value > _NOTHING:
        kind = "point hollow" if point.hollow else "point"
        parts.append(svg.element("circle", cx=x(point.value), cy=y, r=5, class_=kind))
    else:
        parts.append(svg.element("text", text="none seen", x=_LEFT + 6, y=y + 4, class_="tick"))
    return svg.titled(_sentence(point, words), *parts)


def _sentence(point: Point, words: Words) -> str:
    if point.value is None:
        return f"{point.label}: not known"
    between = ""
    if point.low is not None and point.high is not None:
        between = f", between {words(point.low)} and {words(point.high)}"
    return f"{point.label}: {words(point.value)}{between}{', projected' if point.hollow else ''}"


def _description(rows: Sequence[ChartRow], series: Sequence[str], words: Words) -> str:
    """The chart as text, for screen readers."""
    return "; ".join(
        f"{row.label}: "
        + ", ".join(f"{name} {words(v)}" for name, v in zip(series, row.values, strict=True) if v > 0)
        for row in rows
        if any(row.values)
    )


def _length(row: ChartRow, *, stacked: bool) -> float:
    return sum(row.values) if stacked else max(row.values, default=0.0)


def _short(label: str) -> str:
    # What fits left of the plot in bold.
    return label if len(label) <= 24 else label[:23] + "…"


def figure(
    name: str, title: str, description: str, height: float, drawn: Sequence[str], width: float = WIDTH
) -> str:
    """The drawing as a whole, named and described in words."""
    return svg.element(
        "svg",
        svg.element("title", id=f"{name}-title", text=title),
        svg.element("desc", id=f"{name}-desc", text=description or "nothing to draw"),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {svg.number(width)} {svg.number(height)}",
        role="figure",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="chart",
    )
