"""A series as SVG: a line through the medians, a band from the least to the greatest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from probing_cluster.core import records
from probing_cluster.reports.charts import svg

WIDTH, HEIGHT = 960.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, 20.0, 8.0, 24.0
_LINES = 4


@records.record
class SeriesPlace:
    """One place along the series."""

    at: float = records.doc("where it is: a step, or the number of a row")
    middle: float = records.doc("the median of the values there")
    low: float = records.doc("the least of them")
    high: float = records.doc("the greatest of them")


def line(name: str, title: str, places: Sequence[SeriesPlace], words: Callable[[float], str]) -> str:
    """The series, from left to right; nothing for none."""
    if not places:
        return ""
    low, high = min(p.low for p in places), max(p.high for p in places)
    spread = (high - low) or abs(high) or 1.0
    first, last = places[0].at, places[-1].at

    def x(at: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((at - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / spread)

    drawn = []
    for n in range(_LINES + 1):
        value = low + spread * n / _LINES
        drawn.append(
            svg.element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y(value), y2=y(value), class_="grid")
        )
        drawn.append(
            svg.element(
                "text", text=words(value), x=_LEFT - 8, y=y(value) + 4, text_anchor="end", class_="tick"
            )
        )
    for at, anchor in ((first, "start"), (last, "end")):
        drawn.append(
            svg.element("text", text=f"{at:g}", x=x(at), y=HEIGHT - 6, text_anchor=anchor, class_="tick")
        )
    edge = [(x(p.at), y(p.high)) for p in places] + [(x(p.at), y(p.low)) for p in reversed(places)]
    middle = " ".join(f"{svg.number(x(p.at))},{svg.number(y(p.middle))}" for p in places)
    drawn.append(svg.polygon(edge, class_="band"))
    drawn.append(svg.element("polyline", points=middle, class_="series"))
    described = f"from {words(places[0].middle)} at {first:g} to {words(places[-1].middle)} at {last:g}; between {words(low)} and {words(high)}"
    return svg.element(
        "svg",
        svg.element("title", id=f"{name}-title", text=title),
        svg.element("desc", id=f"{name}-desc", text=described),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {svg.number(WIDTH)} {svg.number(HEIGHT)}",
        role="figure",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="chart",
    )


def finite(value: object) -> bool:
    """Whether a value can be drawn."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
