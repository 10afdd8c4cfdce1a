"""The night's two drawings as PNG, each for light and dark: failures by node and time, and by day and status."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from matplotlib import dates as mdates
from matplotlib import layout_engine
from matplotlib.figure import Figure

from probing_cluster.core import records
from probing_cluster.lemon import nightly

_DAY = timedelta(days=1)
MOST_NODES = 14


@dataclass(frozen=True, kw_only=True)
class Paint:
    """Colours of one surrounding; those of reports/templates/base.css."""

    ground: str
    ink: str
    faint: str
    line: str
    lemon: str
    suspect: str
    other: str


LIGHT = Paint(ground="#ffffff", ink="#1c2126", faint="#5a646e", line="#d9dde1", lemon="#b3261e", suspect="#9a6700", other="#9aa5af")  # fmt: skip
DARK = Paint(ground="#1c2226", ink="#e6e9ec", faint="#9fa9b2", line="#353d43", lemon="#ff8a80", suspect="#e3b341", other="#6e7a84")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One drawing."""

    name: str
    alt: str
    """Alternative text."""
    light: bytes
    dark: bytes


def of(night: nightly.Night) -> tuple[Chart, ...]:
    """The drawings of a night; none if no lemon or suspect had a failure."""
    shown = [*night.new, *night.still, *night.gone, *night.suspects][:MOST_NODES]
    shown = [s for s in shown if s.signals.get("failed_at")]
    if not shown:
        return ()
    since, until = night.day + _DAY - night.window_days * _DAY, night.day + _DAY
    return (
        Chart(
            name="nodes",
            alt=f"Failures of {', '.join(s.node for s in shown)} by day",
            light=_png(_nodes(shown, since, until, LIGHT)),
            dark=_png(_nodes(shown, since, until, DARK)),
        ),
        Chart(
            name="fleet",
            alt="Failures a day that were laid at a node: lemons' and everybody else's",
            light=_png(_fleet(night, since, until, LIGHT)),
            dark=_png(_fleet(night, since, until, DARK)),
        ),
    )


def _nodes(shown: Sequence[records.LemonScore], since: datetime, until: datetime, paint: Paint) -> Figure:
    """A line per node, a dot per failure."""
    figure, axes = _canvas(0.95 + 0.34 * len(shown), since, until, paint, "Failures by node")
    for row, score in enumerate(shown):
        days = [at for at in _failed_at(score) if at >= since]
        lemon = score.verdict == nightly.LEMON
        axes.axhline(row, color=paint.line, linewidth=0.8, zorder=1)
        axes.scatter(days, [row] * len(days), s=46, color=paint.lemon if lemon else paint.suspect, edgecolors=paint.ground,
                     linewidths=0.8, zorder=3, clip_on=False, marker="o" if lemon else "D")  # fmt: skip
    axes.set_yticks(range(len(shown)), [s.node for s in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    handles = [
        axes.scatter([], [], s=46, color=colour, marker=marker, label=label)
        for colour, marker, label in ((paint.lemon, "o", "lemon"), (paint.suspect, "D", "suspect or gone"))
    ]
    _legend(axes, handles, paint)
    return figure


def _fleet(night: nightly.Night, since: datetime, until: datetime, paint: Paint) -> Figure:
    """Stacked bars by day."""
    figure, axes = _canvas(1.9, since, until, paint, "Failures a day")
    days = [since + n * _DAY for n in range(night.window_days)]
    lemons, others = [0] * len(days), [0] * len(days)
    for score in night.scores:
        for at in _failed_at(score):
            n = (at - since) // _DAY
            if 0 <= n < len(days):
                (lemons if score.verdict == nightly.LEMON else others)[n] += 1
    middle = [d + _DAY / 2 for d in days]
    axes.bar(middle, lemons, width=0.8, color=paint.lemon, label="lemons")
    axes.bar(middle, others, width=0.8, bottom=lemons, color=paint.other, label="all others")
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=4)
    _legend(axes, axes.get_legend_handles_labels()[0], paint)
    return figure


def _legend(axes: Any, handles: Sequence[Any], paint: Paint) -> None:
    """Draws the legend in the line of the title, at the right."""
    made = axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=9,
                       handlelength=1.0, columnspacing=1.0, handletextpad=0.4, borderaxespad=0.2)  # fmt: skip
    for text in made.get_texts():
        text.set_color(paint.faint)


def _canvas(height: float, since: datetime, until: datetime, paint: Paint, title: str) -> tuple[Figure, Any]:
    """A figure as wide as a mail; heights in inches."""
    figure = Figure(
        figsize=(4.3, height),
        dpi=250,
        facecolor=paint.ground,
        layout=layout_engine.ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08),
    )
    axes = figure.add_subplot(facecolor=paint.ground)
    axes.set_title(title, loc="left", pad=7, color=paint.ink, fontsize=10.5, fontweight="bold")
    axes.set_xlim(mdates.date2num(since), mdates.date2num(until))  # type: ignore[no-untyped-call]
    every = max(1, (until - since) // _DAY // 4)
    axes.xaxis.set_major_locator(mdates.DayLocator(interval=every))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(mdates.DateFormatter("%d %b"))  # type: ignore[no-untyped-call]
    axes.tick_params(colors=paint.faint, labelcolor=paint.ink, labelsize=9.5, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(paint.line)
    return figure, axes


def _failed_at(score: records.LemonScore) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in score.signals.get("failed_at", ())]


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    # Without its own name and time in it, the same night gives the same bytes.
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
