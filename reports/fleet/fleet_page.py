"""The cluster's reliability figures as one self-contained page: every figure drawn, and every number in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from probing_cluster.core import records
from probing_cluster.reports import page
from probing_cluster.reports.charts import charts
from probing_cluster.reports.fleet import amounts, column_heads, fleet_words, node_drawings

Figure = Mapping[str, Any]
"""One figure as `probing-ctl fleet --json` prints it."""

_ABOUT = ("since", "until", "cluster", "partition", "users")
MOST_ROWS = 200
"""Most rows of a table on the page; `--json` has all."""


@records.record
class PageTable:
    """Rows of text; the columns in `numbers` are numbers."""

    caption: str = records.doc("its heading")
    heads: tuple[str, ...] = records.doc("column heads")
    rows: tuple[tuple[str, ...], ...] = records.doc("cells")
    numbers: frozenset[int] = records.doc("positions of numeric columns", default=frozenset())
    n_more: int = records.doc("rows left out", default=0)


@records.record
class PageSection:
    """One figure on the page."""

    name: str = records.doc("its name on the command line, and its anchor")
    title: str = records.doc("its subject")
    sentence: str = records.doc("its main number as a sentence, empty where there is none", default="")
    chart: str = records.doc("SVG, or empty", default="")
    series: tuple[str, ...] = records.doc("names of the chart's parts, for its key", default=())
    tables: tuple[PageTable, ...] = records.doc("its rows", default=())


def render(
    cluster: str, figures: Mapping[str, Figure], meanings: Mapping[str, str], *, made_at: datetime
) -> str:
    """The page; `figures` by name, in the order they are shown."""
    first: Figure = next(iter(figures.values()), {})
    template = page.environment().get_template("fleet.html.j2")
    return template.render(cluster=cluster, about=first, made_at=made_at, **parts_of(figures, meanings))


def parts_of(figures: Mapping[str, Figure], meanings: Mapping[str, str]) -> dict[str, Any]:
    """The values for fleet_body.html.j2, on a page of its own or inside another."""
    sections = [_section(name, figure, meanings[name]) for name, figure in figures.items()]
    return {"sections": sections, "facts": _facts(figures), "begin": fleet_words.begin(figures)}


def _section(name: str, figure: Figure, meaning: str) -> PageSection:
    drawn = _DRAWN.get(name)
    chart, series = drawn(name, meaning, figure) if drawn else ("", ())
    return PageSection(
        name=name,
        title=meaning[:1].upper() + meaning[1:],
        sentence=" ".join(fleet_words.sentences(name, figure)),
        chart=Markup(chart),  # noqa: S704 - the chart escapes its own values
        series=tuple(series),
        tables=tuple(_tables(figure)),
    )


def _tables(figure: Figure) -> Sequence[PageTable]:
    made = []
    for key, value in figure.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            made.append(_table(key, [_flat(row) for row in value]))
        elif isinstance(value, dict) and value and key not in _ABOUT:
            made.append(_table(key, [{"what": k, key: v} for k, v in _flat(value).items()]))
    return made


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values side by side: measured.mttf_h."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": v for inner, v in _flat(value).items()}
        else:
            flat[key] = value
    return flat


def _table(key: str, rows: Sequence[Mapping[str, Any]]) -> PageTable:
    heads = list(dict.fromkeys(name for row in rows for name in row))
    numeric = (int, float, type(None))
    numbers = frozenset(
        n for n, h in enumerate(heads) if all(isinstance(row.get(h), numeric) for row in rows)
    )
    cells = tuple(tuple(_cell(head, row.get(head)) for head in heads) for row in rows[:MOST_ROWS])
    return PageTable(
        caption=column_heads.head(key),
        heads=tuple(map(column_heads.head, heads)),
        rows=cells,
        numbers=numbers,
        n_more=max(0, len(rows) - MOST_ROWS),
    )


def _cell(head: str, value: Any) -> str:
    return (
        fleet_words.percent(value) if head.endswith("_frac") and isinstance(value, float) else number(value)
    )


def number(value: Any) -> str:
    """A value as short text; a dash if it is not known."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return ", ".join(map(number, value)) if isinstance(value, list) else str(value)


def hours(value: float) -> str:
    """Hours, of GPUs or of the wall."""
    return f"{number(float(value))} h"


def _facts(figures: Mapping[str, Figure]) -> list[tuple[str, str]]:
    """The most important numbers, for the head of the page."""
    states, ettr = figures.get("state-breakdown", {}), figures.get("run-ettr", {})
    few_attempts = (states.get("n_attempts") or 0) < amounts.FEW
    few_runs = (ettr.get("n_with_gpus") or 0) < amounts.FEW
    rate, loss = figures.get("large-job-rate", {}), figures.get("goodput-loss", {})
    wanted = (
        ("attempts", states.get("n_attempts"), number),
        ("GPU hours", states.get("gpu_h"), number),
        (
            "GPU time in attempts that infrastructure ended",
            None if few_attempts else states.get("infrastructure_gpu_time_frac"),
            fleet_words.percent,
        ),
        ("ETTR of runs with GPUs", None if few_runs else ettr.get("ettr"), fleet_words.percent),
        ("failures per node-day, large jobs", rate.get("per_node_day"), number),
        (
            "GPU hours lost",
            None
            if states and states.get("gpu_h") is None
            else _sum(loss.get("first_gpu_h"), loss.get("second_gpu_h")),
            number,
        ),
    )
    return [(words, form(value)) for words, value, form in wanted if value is not None]


def _sum(*values: float | None) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


Drawn = tuple[str, Sequence[str]]
Draw = Callable[[str, str, Figure], Drawn]


def _bars(
    of: str,
    label: Callable[[Mapping[str, Any]], str],
    fields: Mapping[str, str],
    words: Callable[[float], str] = fleet_words.percent,
    *,
    stacked: bool = False,
) -> Draw:
    """Draws bars for each row of the figure's list `of`; `fields`: what each series is called, and which field it shows."""

    def draw(name: str, title: str, figure: Figure) -> Drawn:
        rows = [
            charts.ChartRow(label=label(row), values=tuple(row[field] or 0.0 for field in fields.values()))
            for row in figure[of]
        ]
        return charts.bars(name, title, tuple(fields), rows, words, stacked=stacked), tuple(fields)

    return draw


def _rates(name: str, title: str, figure: Figure) -> Drawn:
    rows = [
        charts.Point(
            label=c["component"], value=c["per_gpu_h"], low=c["low_per_gpu_h"], high=c["high_per_gpu_h"]
        )
        for c in figure["components"]
    ]
    return charts.points(name, title, rows, amounts.one_per_gpu_h), ()


def _over_time(name: str, title: str, figure: Figure) -> Drawn:
    totals: dict[str, int] = {}
    for bucket in figure["buckets"]:
        for component, n in bucket["failures"].items():
            totals[component] = totals.get(component, 0) + n
    series = sorted(totals, key=lambda c: (-totals[c], c))
    if len(series) > _MOST_SERIES:
        series = [*series[: _MOST_SERIES - 1], "others"]
    rows = []
    for bucket in figure["buckets"]:
        found: Mapping[str, int] = bucket["failures"]
        values = [float(found.get(c, 0)) for c in series if c != "others"]
        if "others" in series:
            values.append(float(sum(n for c, n in found.items() if c not in series)))
        rows.append(charts.ChartRow(label=str(bucket["at"])[:10], values=tuple(values)))
    marks = node_drawings.marks(
        figure, "checks_began", figure["bucket_s"], lambda c: f"{c['name']} {c['version']}"
    )
    return charts.columns(name, title, series, rows, number, marks=marks), series


_MOST_SERIES = 8


def _mttf(name: str, title: str, figure: Figure) -> Drawn:
    rows = []
    for size in figure["sizes"]:
        measured = size["measured"]
        if measured is not None:
            rows.append(
                charts.Point(
                    label=amounts.gpus(size["n_gpus"]),
                    value=measured["mttf_h"],
                    low=measured["low_h"],
                    high=measured["high_h"],
                )
            )
        elif size["projected_h"] is not None:
            rows.append(
                charts.Point(
                    label=f"{amounts.gpus(size['n_gpus'])}, projected",
                    value=size["projected_h"],
                    low=size["projected_low_h"],
                    high=size["projected_high_h"],
                    hollow=True,
                )
            )
    return charts.points(name, title, rows, hours), ()


def _ettr(name: str, title: str, figure: Figure) -> Drawn:
    parts = {k: v for k, v in figure["waterfall_gpu_h"].items() if v}
    rows = [
        charts.ChartRow(label=k.replace("_", " "), values=(v,))
        for k, v in sorted(parts.items(), key=lambda p: -p[1])
    ]
    return charts.bars(name, title, ("GPU hours",), rows, hours), ()


def _grid(name: str, title: str, figure: Figure) -> Drawn:
    """A group of bars for each restart time and interval: one bar per failure rate."""
    factors = sorted({c["rate_factor"] for c in figure["cells"]})
    series = tuple(f"failure rate x {f:g}" for f in factors)
    value = {(c["restart_s"], c["interval_s"], c["rate_factor"]): c["ettr"] for c in figure["cells"]}
    rows = [
        charts.ChartRow(
            label=f"every {every / 60:g} min, restart {restart / 60:g} min",
            values=tuple(value[restart, every, f] for f in factors),
        )
        for restart, every in sorted({key[:2] for key in value})
    ]
    return charts.bars(name, title, series, rows, fleet_words.percent, stacked=False), series


def _coverage(name: str, title: str, figure: Figure) -> Drawn:
    series = ("seen by a check", "by other sources of the node", "by no source of the node")
    rows = [
        charts.ChartRow(
            label=c["cause"], values=(c["n_by_check"], c["n_by_node"] - c["n_by_check"], c["n_without"])
        )
        for c in figure["causes"]
    ]
    return charts.bars(name, title, series, rows, number), series


def _what_if(name: str, title: str, figure: Figure) -> Drawn:
    rows = [charts.ChartRow(label=s["name"], values=(s["ettr"],)) for s in figure["scenarios"]]
    return charts.bars(name, title, ("ETTR",), rows, fleet_words.percent), ()


def _tested(name: str, title: str, figure: Figure) -> Drawn:
    """A heat map of nodes by tests, the worst node first."""
    columns = [key for key in (figure["nodes"][0] if figure["nodes"] else {}) if key != "node"]
    rows = [
        charts.HeatRow(label=str(row["node"]), cells=tuple(row.get(c) for c in columns))
        for row in figure["nodes"]
    ]

    def heat(row: charts.HeatRow) -> float:
        return max((99.0 if isinstance(c, str) else c for c in row.cells if c is not None), default=0.0)

    rows.sort(key=lambda row: (-heat(row), row.label))
    return charts.heat(name, title, columns, rows[:MOST_ROWS]), ()


def _by_gpus(row: Mapping[str, Any]) -> str:
    return amounts.gpus(row["n_gpus"])


_SHARES = {"share of attempts": "attempts_frac", "share of GPU time": "gpu_time_frac"}

_DRAWN: Mapping[str, Draw] = {
    "state-breakdown": _bars("states", lambda row: str(row["state"]), _SHARES),
    "job-sizes": _bars("sizes", _by_gpus, _SHARES),
    "failure-rates": _rates,
    "failures-over-time": _over_time,
    "mttf-by-size": _mttf,
    "goodput-loss": _bars(
        "sizes",
        _by_gpus,
        {"lost by the failed job": "first_gpu_h", "lost by jobs preempted for its return": "second_gpu_h"},
        hours,
        stacked=True,
    ),
    "run-ettr": _ettr,
    "expected-ettr": _bars(
        "sizes",
        _by_gpus,
        {"as configured": "renewal", "at the best checkpoint interval": "renewal_at_best"},
    ),
    "ettr-by-size": _bars("sizes", _by_gpus, {"measured": "measured", "expected": "expected"}),
    "ettr-grid": _grid,
    "check-coverage": _coverage,
    "what-if": _what_if,
    "utilisation": node_drawings.utilisation,
    "gpu-swaps": node_drawings.gpu_swaps,
    "lemon-signals": node_drawings.lemon_signals,
    "lemon-departures": node_drawings.lemon_departures,
    "node-tests": _tested,
    "node-pace": _tested,
}
