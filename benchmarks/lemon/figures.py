"""Figures of many runs, pooled, with their bounds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarks.lemon.fleet import Fleet

MONTH_DAYS = 30.4
LARGE_NODES = 64
"""Nodes of a 512-GPU job."""
LARGE_DAYS = -np.log(0.86) / (LARGE_NODES * 6.5e-3)
"""Its length, days: so that 14 % fail at r_f = 6.5e-3 (0.36 d; the paper prints no length)."""
LATE_DAYS = 60
"""The end of the period, when most lemons are bad: what the paper's before and after compare."""
BELIEF = (0.0, 0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 1.0001)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One method on one fleet."""

    seed: int
    named: int
    right: int
    delays: tuple[float, ...]
    """Days from onset to being named, per lemon; inf where never (or not before it was mended)."""
    months: float
    large_before: tuple[float, float]
    """Failure share of 512-GPU jobs: whole period, last 60 days."""
    large_after: tuple[float, float]
    believed: np.ndarray
    """(probability, truth) rows."""


def outcome(
    fleet: Fleet, seed: int, found: Mapping[int, int], believed: Sequence[np.ndarray] = ()
) -> Outcome:
    """Judges one run against the truth."""
    right = {n: d for n, d in found.items() if fleet.lemon[n] and fleet.onset[n] <= d <= fleet.mended[n]}
    lemons = np.flatnonzero(fleet.lemon)
    return Outcome(
        seed=seed,
        named=len(found),
        right=len(right),
        delays=tuple(float(right[n] - fleet.onset[n]) if n in right else np.inf for n in lemons.tolist()),
        months=fleet.regime.days / MONTH_DAYS,
        large_before=_large(fleet, {}),
        large_after=_large(fleet, right),
        believed=np.concatenate(believed) if len(believed) else np.zeros((0, 2)),
    )


def _large(fleet: Fleet, removed: Mapping[int, int]) -> tuple[float, float]:
    """Failure share of 512-GPU jobs placed anywhere, if these nodes are mended on these days."""
    bad = fleet.spells.copy()
    for node, day in removed.items():
        bad[day:, node] = False
    rate = (np.where(bad, fleet.rate[None, :], 0.0) + fleet.healthy[None, :]) @ fleet.use / fleet.use.sum()
    fails = 1.0 - np.exp(-LARGE_NODES * LARGE_DAYS * rate)
    return float(fails.mean()), float(fails[-LATE_DAYS:].mean())


def exact(hits: int, total: int) -> tuple[float, float]:
    """95 % Clopper-Pearson bounds of a share."""
    if not total:
        return float("nan"), float("nan")
    low = special.betaincinv(hits, total - hits + 1, 0.025) if hits else 0.0
    high = special.betaincinv(hits + 1, total - hits, 0.975) if hits < total else 1.0
    return float(low), float(high)


def poisson_upper(count: int, months: float) -> float:
    """95 % upper bound (one-sided) of a monthly rate."""
    return float(special.gammaincinv(count + 1, 0.95) / months)


def median_days(outcomes: Sequence[Outcome]) -> float:
    """Over all lemons, the missed ones counted as infinitely late."""
    delays = [d for o in outcomes for d in o.delays]
    return float(np.median(delays)) if delays else float("nan")


def bootstrap(
    ours: Sequence[Outcome], theirs: Sequence[Outcome] | None = None, draws: int = 2000
) -> tuple[float, float]:
    """95 % bounds of the median days, or of the ratio to `theirs`; whole fleets are drawn, paired by seed."""
    if not any(o.delays for o in ours):
        return float("nan"), float("nan")
    rng = np.random.default_rng(11)
    values = []
    for _ in range(draws):
        rows = rng.integers(0, len(ours), len(ours))
        value = median_days([ours[i] for i in rows])
        if theirs is not None:
            value /= median_days([theirs[i] for i in rows])
        values.append(value)
    low, high = np.quantile(values, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def reliability(outcomes: Sequence[Outcome]) -> list[tuple[float, float, int, float, float]]:
    """(from, to, nodes, mean probability, share that were lemons) of each band of belief that occurred."""
    rows = np.concatenate([o.believed for o in outcomes])
    table = []
    for low, high in itertools.pairwise(BELIEF):
        inside = rows[(rows[:, 0] >= low) & (rows[:, 0] < high)]
        if inside.size:
            table.append(
                (low, min(high, 1.0), len(inside), float(inside[:, 0].mean()), float(inside[:, 1].mean()))
            )
    return table
