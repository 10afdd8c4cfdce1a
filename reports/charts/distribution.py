"""Distributions side by side as SVG: one small panel each, the share of nodes up to every value, marked nodes as points on it."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import records
from probing_cluster.reports.charts import charts, svg

_ACROSS = 3
_PANEL, _PLOT, _LEFT, _GAP, _HEAD = 300.0, 130.0, 44.0, 26.0, 22.0
_FOOT = 24.0


@records.record
class DistributionPanel:
    """One distribution: values in rising order, how many have each, and how many of these are marked."""

    label: str = records.doc("the quantity")
    values: tuple[float, ...] = records.doc("the values, rising")
    counts: tuple[int, ...] = records.doc("number of nodes per value")
    marked: tuple[int, ...] = records.doc("of these, marked")


def cumulative(name: str, title: str, mark: str, panels: Sequence[DistributionPanel]) -> str:
    """The panels, three in a row; `mark` is the word for the marked ones."""
    drawn, words = [], []
    height = _HEAD + _PLOT + _FOOT
    for n, panel in enumerate(panels):
        left, top = (n % _ACROSS) * (_PANEL + _GAP / 2), (n // _ACROSS) * height
        drawn.append(_panel(panel, mark, left, top))
        words.append(_sentence(panel, mark))
    rows = -(-len(panels) // _ACROSS)
    return charts.figure(name, title, "; ".join(words), rows * height + 6, drawn)


def _panel(panel: DistributionPanel, mark: str, left: float, top: float) -> str:
    floor, x0 = top + _HEAD + _PLOT, left + _LEFT
    width = _PANEL - _LEFT - 12
    most = max((*panel.values, 0.0)) or 1.0
    total = sum(panel.counts) or 1

    def x(value: float) -> float:
        return x0 + width * value / most

    drawn = [svg.element("text", text=panel.label, x=x0, y=top + _HEAD - 8, class_="name")]
    for share in (0.0, 0.5, 1.0):
        y = floor - share * _PLOT
        drawn.append(svg.element("line", x1=x0, x2=x0 + width, y1=y, y2=y, class_="grid"))
        drawn.append(
            svg.element("text", text=f"{share:.0%}", x=x0 - 6, y=y + 4, text_anchor="end", class_="tick")
        )
    for value in (0.0, most):
        anchor = "start" if value == 0 else "end"
        drawn.append(
            svg.element(
                "text", text=f"{value:g}", x=x(value), y=floor + 16, text_anchor=anchor, class_="tick"
            )
        )
    line, points, below = [(x0, floor)], [], 0
    for value, count, marked in zip(panel.values, panel.counts, panel.marked, strict=True):
        before, below = below, below + count
        line += [(x(value), floor - _PLOT * before / total), (x(value), floor - _PLOT * below / total)]
        if marked:
            dot = svg.element(
                "circle",
                cx=x(value),
                cy=floor - _PLOT * below / total,
                r=3.0 + min(marked, 9) ** 0.5,
                class_="s1",
            )
            points.append(svg.titled(f"{panel.label} {value:g}: {marked} of {count} are {mark}", dot))
    line.append((x0 + width, floor - _PLOT))
    path = " ".join(f"{svg.number(a)},{svg.number(b)}" for a, b in line)
    return svg.element("g", *drawn, svg.element("polyline", points=path, class_="series"), *points)


def _sentence(panel: DistributionPanel, mark: str) -> str:
    total, marked = sum(panel.counts), sum(panel.marked)
    held = [v for v, n in zip(panel.values, panel.marked, strict=True) if n]
    between = f", {mark} ({marked}) from {min(held):g} to {max(held):g}" if held else f", no {mark}"
    none = sum(c for v, c in zip(panel.values, panel.counts, strict=True) if v == 0)
    return f"{panel.label}: {total} known, {none} of them 0{between}"
