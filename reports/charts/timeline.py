"""An attempt's life as a bar of characters, to scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from probing_cluster.core import records
from probing_cluster.reports import attempt_view, model

MARKS = {"#": "ran", "-": "lost", ".": "waited", "x": "died"}


@records.record
class Axis:
    """The time span of one row of characters."""

    start_at: datetime = records.doc("left edge")
    end_at: datetime = records.doc("right edge")
    cells: int = records.doc("characters")

    @property
    def cell_s(self) -> float:
        """Seconds one character stands for."""
        return max((self.end_at - self.start_at).total_seconds(), 1.0) / self.cells

    def position(self, at: datetime) -> float:
        """The place of `at` in characters from the left edge; it may lie outside."""
        return (at - self.start_at).total_seconds() / self.cell_s


def axis(report: model.ReportModel, cells: int) -> Axis:
    """The axis from submission (or the first start, when the first wait would take over half) to the end."""
    start, end = report.submit_at, report.drawn_until
    if report.start_at and (report.start_at - start) * 2 > end - start:
        start = report.start_at
    return Axis(start_at=start, end_at=end, cells=cells)


def bar(view: attempt_view.AttemptView, scale: Axis, waiting_since: datetime) -> str:
    """`....######---x`: waited from `waiting_since`, ran, lost the last part, died."""
    begin = view.attempt.start_at or view.attempt.end_at or scale.end_at
    end = view.attempt.end_at or scale.end_at
    lost_from = end.timestamp() - (view.lost_s or 0.0)
    cells = []
    for i in range(scale.cells):
        middle = scale.start_at.timestamp() + (i + 0.5) * scale.cell_s
        if middle < begin.timestamp():
            cells.append("." if middle >= waiting_since.timestamp() else " ")
        elif middle <= end.timestamp():
            cells.append("-" if middle > lost_from else "#")
        else:
            cells.append(" ")
    _mark(cells, scale, begin, end, ended_unfinished=view.ended_unfinished)
    return "".join(cells).rstrip()


def legend(bars: Iterable[str], meanings: Mapping[str, str] | None = None) -> str:
    """The legend of the marks in these bars; `meanings` replaces usual words, and unused marks are left out."""
    drawn = set("".join(bars))
    words = MARKS | dict(meanings or {})
    return ", ".join(f"{mark} {meaning}" for mark, meaning in words.items() if mark in drawn)


def _mark(cells: list[str], scale: Axis, begin: datetime, end: datetime, *, ended_unfinished: bool) -> None:
    """Draws at least one character for a run, and always an unfinished end."""
    last = min(max(int(scale.position(end) - 1e-9), 0), scale.cells - 1)
    if ended_unfinished:
        cells[last] = "x"
    elif not {"#", "-"} & set(cells) and end > begin:
        cells[last] = "#"
