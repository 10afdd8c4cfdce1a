"""Mean time to failure, its exact Poisson interval, and the projection to other sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special


@dataclass(frozen=True, kw_only=True)
class FailureRate:
    """Events per unit of exposure with an exact (Garwood) Poisson interval."""

    n_events: int
    exposure: float
    rate: float | None
    """None without exposure."""
    low: float | None
    high: float | None
    level: float = 0.95


def poisson_rate(n_events: int, exposure: float, *, level: float = 0.95) -> FailureRate:
    """The rate and the interval [χ²(α/2; 2k)/2T, χ²(1−α/2; 2k+2)/2T]."""
    if exposure <= 0:
        return FailureRate(n_events=n_events, exposure=exposure, rate=None, low=None, high=None, level=level)
    tail = (1.0 - level) / 2.0
    # A χ² quantile with 2k degrees of freedom is twice the gamma quantile; importing scipy.stats takes half a second.
    low = float(special.gammaincinv(n_events, tail)) if n_events else 0.0
    high = float(special.gammaincinv(n_events + 1, 1.0 - tail))
    return FailureRate(
        n_events=n_events,
        exposure=exposure,
        rate=n_events / exposure,
        low=low / exposure,
        high=high / exposure,
        level=level,
    )


def clustered_rate(sizes: Sequence[int], exposure: float, *, level: float = 0.95) -> FailureRate:
    """The rate of events that come in clusters of `sizes` (each at least 1), with the gamma interval of Fay and Feuer (1997).

    Clusters are Poisson, events are not: the interval is that of a weighted sum of Poisson counts, and the exact one if every cluster
    is one event. With twenty clusters or more it holds what it promises (tests); a sort of cluster not met yet is in no interval.
    """
    n_events, squares, most = sum(sizes), sum(k * k for k in sizes), max(sizes, default=1)
    if exposure <= 0 or most == 1:
        return poisson_rate(n_events, exposure, level=level)
    tail = (1.0 - level) / 2.0
    more, more_squares = n_events + most, squares + most * most
    low = float(special.gammaincinv(n_events**2 / squares, tail)) * squares / n_events
    high = float(special.gammaincinv(more**2 / more_squares, 1.0 - tail)) * more_squares / more
    return FailureRate(
        n_events=n_events,
        exposure=exposure,
        rate=n_events / exposure,
        low=low / exposure,
        high=high / exposure,
        level=level,
    )


@dataclass(frozen=True, kw_only=True)
class Mttf:
    """Mean time to failure of jobs of one size, hours; None if nothing failed or nothing ran."""

    n_failures: int
    """Attempts that failed."""
    n_incidents: int
    """Incidents that ended them: one may end many."""
    runtime_h: float
    mttf_h: float | None
    low_h: float | None
    high_h: float | None
    """None = unbounded: no failure was seen."""


def measured(per_incident: Sequence[int], runtime_h: float, *, level: float = 0.95) -> Mttf:
    """Runtime per failed attempt; `per_incident`: the attempts that each incident ended. Its interval knows that they failed together."""
    rate = clustered_rate(per_incident, runtime_h, level=level)
    return Mttf(
        n_failures=rate.n_events,
        n_incidents=len(per_incident),
        runtime_h=runtime_h,
        mttf_h=_inverse(rate.rate),
        low_h=_inverse(rate.high),
        high_h=_inverse(rate.low),
    )


def projected_h(n_gpus: float, failures_per_node_day: float, *, gpus_per_node: int = 8) -> float:
    """1 / (N r_f) for a job of `n_gpus`, hours."""
    nodes = math.ceil(n_gpus / gpus_per_node)
    return 24.0 / (nodes * failures_per_node_day) if failures_per_node_day > 0 else math.inf


def _inverse(rate: float | None) -> float | None:
    return 1.0 / rate if rate else None
