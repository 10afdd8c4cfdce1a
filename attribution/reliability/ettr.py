"""Expected ETTR (effective training time ratio): published linear forms, exact renewal form, simulation.

Notation of arXiv 2410.21680: N nodes, r_f failures per node-day of scheduled time, dt seconds of training between
checkpoints, w seconds blocked per checkpoint, u0 seconds from start to the first new step, q seconds of
queueing at submission and after each failure, R seconds of productive training (None = a run without end).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

DAY_S = 86400.0
Floats = Any
"""A numpy array of float64."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One run's parameters."""

    n_nodes: float
    failures_per_node_day: float
    interval_s: float
    """dt: training between two checkpoints."""
    restart_s: float = 300.0
    """u0: from the start to the first new step."""
    write_s: float = 0.0
    """w: blocked on writing one checkpoint."""
    queue_s: float = 0.0
    """q: mean wait at submission and after each failure."""
    productive_s: float | None = None
    """R; None for a run without end."""

    @property
    def rate_per_s(self) -> float:
        """Failures per second of scheduled time."""
        return self.n_nodes * self.failures_per_node_day / DAY_S


def linear_v1(model: Model) -> float:
    """First order, without write cost (v1 of the paper, 0..1): for values above about 0.5; never negative."""
    rate, q = model.rate_per_s, model.queue_s
    a = 1.0 - rate * (model.restart_s + model.interval_s / 2.0)
    if a <= 0:
        return 0.0
    if model.productive_s is None:
        return a / (1.0 + rate * q)
    r = model.productive_s
    return r * a / ((r + model.restart_s) * (1.0 + rate * q) + q * a)


def linear_v2(model: Model) -> float:
    """The form of the HPCA version (0..1): with write cost, without queueing."""
    lost = model.rate_per_s * (model.restart_s + model.interval_s / 2.0)
    return max(0.0, 1.0 - lost) / (1.0 + model.write_s / model.interval_s)


def renewal(model: Model) -> float:
    """Exact for exponential failures, also during restart and write (0..1)."""
    rate, u0, q = model.rate_per_s, model.restart_s, model.queue_s
    dt, w = model.interval_s, model.write_s
    if rate == 0:
        if model.productive_s is None:
            return dt / (dt + w)
        return model.productive_s / (model.productive_s * (1 + w / dt) + u0 + q)
    exponent = rate * (u0 + dt + w)
    if exponent > 700:
        return 0.0
    per_segment = math.exp(rate * u0) * math.expm1(rate * (dt + w)) / rate
    if model.productive_s is None:
        return dt / (per_segment * (1.0 + rate * q))
    scheduled = model.productive_s / dt * per_segment + math.expm1(rate * u0) / rate
    return model.productive_s / (scheduled + q * (1.0 + rate * scheduled))


def renewals(model: Model, n_nodes: Floats, queue_s: Floats, productive_s: Floats) -> Floats:
    """`renewal` for many runs that differ in size, wait and length only, bit for bit the same."""
    found = np.empty(len(n_nodes))
    u0, dt, w = model.restart_s, model.interval_s, model.write_s
    for size in np.unique(n_nodes):
        of_size = n_nodes == size
        rate = replace(model, n_nodes=float(size)).rate_per_s
        r, q = productive_s[of_size], queue_s[of_size]
        if rate == 0:
            found[of_size] = r / (r * (1 + w / dt) + u0 + q)
        elif rate * (u0 + dt + w) > 700:
            found[of_size] = 0.0
        else:
            per_segment = math.exp(rate * u0) * math.expm1(rate * (dt + w)) / rate
            scheduled = r / dt * per_segment + math.expm1(rate * u0) / rate
            found[of_size] = r / (scheduled + q * (1.0 + rate * scheduled))
    return found


def best_interval_s(model: Model) -> float | None:
    """The interval that maximises the renewal form, seconds (Lambert W); infinite without failures.

    None if a checkpoint costs nothing: then no interval is too short.
    """
    rate = model.rate_per_s
    if rate == 0:
        return math.inf
    if model.write_s == 0:
        return None
    from scipy import special  # importing it costs the service 20 MB

    return float((1.0 + special.lambertw(-math.exp(-1.0 - rate * model.write_s)).real) / rate)


@dataclass(frozen=True, kw_only=True)
class SimulatedEttr:
    """The simulation's result."""

    ettr: float
    """Total productive time over total wall time of all runs, 0..1."""
    standard_error: float
    n_runs: int
    n_failures: int


def simulate(model: Model, *, n_runs: int = 2000, seed: int = 0) -> SimulatedEttr:
    """Simulates all runs at once, one step per failure: an independent check of the forms above.

    A model without end is simulated over 200 intervals. Queueing waits are exponential with mean q.
    """
    segments = max(1, round((model.productive_s or 200 * model.interval_s) / model.interval_s))
    rng = np.random.default_rng(seed)
    segment_s = model.interval_s + model.write_s
    done = np.zeros(n_runs)
    wall_s = rng.exponential(model.queue_s, n_runs) if model.queue_s else np.zeros(n_runs)
    failures = 0
    active = np.arange(n_runs)
    while active.size:
        life = (
            rng.exponential(1.0 / model.rate_per_s, active.size)
            if model.rate_per_s
            else np.full(active.size, np.inf)
        )
        missing = segments - done[active]
        needed = model.restart_s + missing * segment_s
        ended = life >= needed
        wall_s[active] += np.where(ended, needed, life)
        got = np.floor(np.maximum(life - model.restart_s, 0.0) / segment_s)
        done[active] += np.where(ended, missing, np.minimum(got, missing))
        active = active[~ended]
        failures += int(active.size)
        if model.queue_s and active.size:
            wall_s[active] += rng.exponential(model.queue_s, active.size)
    productive_s = segments * model.interval_s
    ratio = productive_s * n_runs / float(wall_s.sum())
    spread = float(wall_s.std(ddof=1)) / math.sqrt(n_runs) if n_runs > 1 else math.nan
    return SimulatedEttr(
        ettr=ratio,
        standard_error=ratio * spread / float(wall_s.mean()),
        n_runs=n_runs,
        n_failures=failures,
    )
