"""Drawings of nodes on the fleet page: their use, lemons, and instants on a time axis."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from probing_cluster.reports.charts import charts, distribution
from probing_cluster.reports.fleet import column_heads, fleet_words

Figure = Mapping[str, Any]
Drawn = tuple[str, Sequence[str]]
MOST_NAMES = 12
"""More marks than this are counted, not named."""


def marks(
    figure: Figure, key: str, bucket_s: float, words: Callable[[Mapping[str, Any]], str], at: str = "at"
) -> list[charts.Mark]:
    """The figure's rows of `key` as marks on the columns of its buckets, `bucket_s` seconds each; those of one day are one."""
    begins = [_instant(b["at"]) for b in figure["buckets"]]
    by_day: dict[str, list[Mapping[str, Any]]] = {}
    for row in figure[key]:
        by_day.setdefault(row[at][:10], []).append(row)
    found = []
    for rows in by_day.values():
        names = ", ".join(map(words, rows)) if len(by_day) <= MOST_NAMES else str(len(rows))
        column = bisect.bisect_right(begins, _instant(rows[0][at])) - 1
        if column >= 0:
            into = (_instant(rows[0][at]) - begins[column]).total_seconds() / bucket_s
            found.append(charts.Mark(label=names, place=column + min(into, 1.0)))
    return found


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utilisation(name: str, title: str, figure: Figure) -> Drawn:
    """Each stretch of time as shares of its capacity."""
    series = ("used and kept", "used, but lost", "free in parts of nodes", "free")
    rows = []
    for bucket in figure["buckets"]:
        used, good, parts = (bucket[f"{key}_frac"] for key in ("utilisation", "goodput", "fragmented"))
        kept = max(0.0, good)
        shares = (kept, max(0.0, used - kept), parts, max(0.0, 1.0 - used - parts))
        rows.append(charts.ChartRow(label=str(bucket["at"])[:10], values=shares))
    return charts.columns(name, title, series, rows, fleet_words.percent), series


def lemon_signals(name: str, title: str, figure: Figure) -> Drawn:
    """A panel per signal: the share of nodes up to each value, lemons as points."""
    panels = []
    for signal in figure["signals"]:
        values = [v for v in figure["values"] if v["signal"] == signal["signal"]]
        panels.append(
            distribution.DistributionPanel(
                label=column_heads.head(signal["signal"]),
                values=tuple(v["value"] for v in values),
                counts=tuple(v["n_nodes"] for v in values),
                marked=tuple(v["n_lemons"] for v in values),
            )
        )
    return distribution.cumulative(name, title, "lemons", panels), ("share of nodes up to a value", "lemons")


def lemon_departures(name: str, title: str, figure: Figure) -> Drawn:
    """The share of large jobs that infrastructure ended, over time; a mark where lemons left."""
    rows = [
        charts.ChartRow(label=str(b["at"])[:10], values=(b["failed_frac"] or 0.0,)) for b in figure["buckets"]
    ]
    left = marks(
        figure, "departures", figure["bucket_days"] * 86400, lambda d: f"{d['node']} left", "left_at"
    )
    series = ("ended by infrastructure",)
    return charts.columns(name, title, series, rows, fleet_words.percent, marks=left), series


def gpu_swaps(name: str, title: str, figure: Figure) -> Drawn:
    """The nodes with most swapped cards."""
    rows = [
        charts.ChartRow(label=n["node"], values=(float(n["n_swaps"]),)) for n in figure["nodes"][:MOST_NAMES]
    ]
    return charts.bars(name, title, ("GPUs swapped",), rows, "{:g}".format), ("GPUs swapped",)
