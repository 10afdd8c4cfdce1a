"""What the nightly run would have seen, day by day, and whom it would have named: ours and the paper's rule.

A named node is taken out and mended the next day: it fails no more, and its history is not scored again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.lemon.fleet import POD, Fleet
from probing_cluster.lemon import baseline, episodes, model, trends

PAPER_DAYS = 28
FIRST_DAY = 7


@dataclass(frozen=True, kw_only=True)
class Options:
    """How much the score is given."""

    window_days: int = 84
    minor: bool = True
    """Minor signs (their rates are our assumption)."""
    places: bool = True
    """Which nodes share a switch."""
    parts: bool = True
    """Which part failed."""
    every: int = 1
    """Nights between runs."""


@dataclass(kw_only=True)
class Run:
    """Whom a method named and when, and what it believed on the way."""

    found: dict[int, int]
    believed: list[np.ndarray] = field(default_factory=list)
    """(probability, truth) rows of every node once a fortnight."""


def window_of(fleet: Fleet, day: int, options: Options, out: np.ndarray) -> model.LemonWindow:
    """What the nightly run of `day` sees; `out`: day each node was taken out and mended, inf for never."""
    n = fleet.regime.nodes
    span = min(day, options.window_days)
    first, last = np.searchsorted(fleet.day, [day - span, day])
    rows = np.arange(first, last)
    away = np.isfinite(out)
    names = fleet.named[rows] >= 0
    named = rows[names & ~away[fleet.named[rows]]]
    cured = (fleet.culprit[rows] >= 0) & (fleet.day[rows] >= out[fleet.culprit[rows]])
    unnamed = rows[~names & ~cured]
    exposure = np.where(away, 1e-3, fleet.use) * span
    return model.LemonWindow(
        exposure_days=exposure,
        named=np.zeros(n),
        episodes=np.zeros(n, np.int64),
        days=np.zeros(n, np.int64),
        gangs=[(fleet.gangs[i], float(fleet.weight[i])) for i in unnamed],
        gang_ages_days=day - fleet.day[unnamed],
        span_days=float(span),
        failures=episodes.Failures(
            node=fleet.named[named],
            age_days=day - fleet.day[named],
            weight=fleet.weight[named],
            part=fleet.part[named] if options.parts else np.full(named.size, -1),
            cause=fleet.cause[named],
        ),
        place=np.arange(n) // POD if options.places else None,
        auxiliary=_minor(fleet, day, exposure) if options.minor else None,
    )


def _minor(fleet: Fleet, day: int, exposure: np.ndarray) -> np.ndarray:
    counts = fleet.minor[max(0, day - PAPER_DAYS) : day].sum(0).astype(float)
    return trends.log_ratio({"minor": counts}, exposure)


def ours(fleet: Fleet, options: Options, name_at: float = model.LEMON_FROM) -> Run:
    """The score, night by night."""
    out = np.full(fleet.regime.nodes + 1, np.inf)
    run = Run(found={})
    for day in range(FIRST_DAY, fleet.regime.days + 1, options.every):
        probability = model.score(window_of(fleet, day, options, out[:-1])).probability
        if day % 14 < options.every:
            present = ~np.isfinite(out[:-1])
            truth = fleet.lemon & (fleet.onset < day) & (fleet.mended >= day)
            run.believed.append(np.stack([probability[present], truth[present]], axis=1))
        for node in np.flatnonzero(probability >= name_at):
            if node not in run.found:
                run.found[int(node)] = day
                out[node] = day
    return run


def signals_of(fleet: Fleet) -> dict[str, np.ndarray]:
    """The paper's seven signals, each (days + 1, nodes): what the run on the morning of a day sees of 28 days."""
    days, n = fleet.regime.days, fleet.regime.nodes
    named = fleet.named >= 0
    at, node = fleet.day[named].astype(int), fleet.named[named]

    def rolling(daily: np.ndarray) -> np.ndarray:
        total = np.vstack([np.zeros((1, n), np.float32), np.cumsum(daily, axis=0, dtype=np.float32)])
        total[PAPER_DAYS:] -= total[:-PAPER_DAYS].copy()
        return total

    def counted(rows: np.ndarray) -> np.ndarray:
        daily = np.zeros((days, n), np.float32)
        np.add.at(daily, (at[rows], node[rows]), 1)
        return rolling(daily)

    single = fleet.size[named] == 1
    xids = fleet.xid[named]
    singles = counted(single)
    jobs = np.minimum(np.arange(days + 1), PAPER_DAYS)[:, None] * (fleet.use * 3.2)[None, :]
    return {
        "excl_jobid_count": rolling(fleet.excludes),
        "xid_cnt": sum((counted(xids == x) > 0).astype(np.float32) for x in np.unique(xids[xids > 0])),
        "tickets": rolling(fleet.tickets),
        "out_count": rolling(fleet.outs),
        "multi_node_node_fails": counted(~single),
        "single_node_node_fails": singles,
        "single_node_node_failure_rate": singles / np.maximum(jobs, 1e-9),
    }  # fmt: skip


def paper(
    signals: dict[str, np.ndarray], limits: dict[str, float], rule: baseline.LemonRule
) -> dict[int, int]:
    """The paper's rule with these thresholds, night by night: node to the day it is named."""
    fails = signals["multi_node_node_fails"] + signals["single_node_node_fails"]
    able = np.flatnonzero(fails.max(axis=0) >= rule.floor)  # no other node can reach a failure signal
    if able.size == 0:
        return {}
    flat = {k: v[:, able].ravel() for k, v in signals.items()}
    hit = baseline.named(flat, limits, rule).reshape(-1, able.size)
    hit[:FIRST_DAY] = False
    first = hit.argmax(axis=0)
    return {int(able[i]): int(first[i]) for i in np.flatnonzero(hit.any(axis=0))}
