"""The probability that a node is a lemon: exposure-aware, uncertain where little was seen.

Each node's hardware failures in the window are Poisson with its own rate. Healthy nodes' rates
scatter (log-normally) around the fleet's, lemons' rates lie anywhere from 10 to 1,000 times above it.
The share of lemons is learnt from the fleet itself, so that a fleet without any names none.
A failure of a gang whose culprit is unknown is shared among its nodes by how likely each is to have
caused it (expectation maximisation); a failure that names its node counts by the verdict's confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

HEALTHY_SIGMA = 0.8
"""Scatter of healthy nodes' rates: log-normal sigma; loads, ages and racks differ."""
LEMON_FACTORS = np.geomspace(10.0, 1000.0, 33)
"""Rates of lemons, relative to the fleet's: log-uniform."""
PRIOR_SHARE = 0.012
"""Share of lemons before anything is known (RSC-1: 24 of 2,000; arXiv 2410.21680)."""
PRIOR_NODES = 300.0
"""How many nodes' worth of belief the prior share has."""
MIN_RATE_PER_DAY = 2e-4
"""A fleet that has hardly failed is not taken for one that cannot."""
EM_ROUNDS = 12

_Z, _W = np.polynomial.hermite_e.hermegauss(15)
_HEALTHY_FACTORS = np.exp(HEALTHY_SIGMA * _Z - HEALTHY_SIGMA**2 / 2)
_HEALTHY_WEIGHTS = _W / _W.sum()
_LEMON_WEIGHTS = np.full(LEMON_FACTORS.size, 1.0 / LEMON_FACTORS.size)


@dataclass(frozen=True, kw_only=True)
class Window:
    """What the window holds, node by node (arrays have one entry per node)."""

    exposure_days: Floats
    """Node-days in use by jobs (not calendar days)."""
    named: Floats
    """Failure episodes whose verdict names this node, each weighted by the verdict's confidence (0..1)."""
    episodes: npt.NDArray[np.int64]
    """The same, unweighted."""
    days: npt.NDArray[np.int64]
    """Distinct days on which they fell."""
    gangs: Sequence[tuple[npt.NDArray[np.int64], float]] = field(default=())
    """Failures that name nobody: (node indices, probability that hardware caused it)."""
    auxiliary: Floats | None = None
    """Further evidence as a log likelihood ratio per node (trends, recurrence), already tempered."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The answer, node by node."""

    probability: Floats
    expected_failures: Floats
    """Failures laid at this node: named ones plus its share of the unnamed."""
    usual_failures: Floats
    """What a node of this fleet with this exposure usually has."""
    shared: Floats
    """Its share of the failures that named nobody."""
    share_of_lemons: float
    fleet_rate_per_day: float


def score(window: Window) -> Scores:
    """Probabilities for one window."""
    exposure = np.maximum(window.exposure_days, 1e-9)
    shared = np.zeros_like(exposure)
    rate = _fleet_rate(window.named, exposure)
    share = PRIOR_SHARE
    probability = np.full_like(exposure, share)
    for _ in range(EM_ROUNDS):
        count = window.named + shared
        rate = _fleet_rate(count, exposure)
        healthy, lemon = _log_likelihoods(count, exposure * rate)
        odds = lemon - healthy + np.log(share / (1 - share))
        if window.auxiliary is not None:
            odds = odds + window.auxiliary
        probability = special.expit(odds)
        share = _share(probability)
        shared = _share_out(window.gangs, _intensity(count, exposure, rate, probability), shared)
    return Scores(
        probability=_with_proof(probability, window, shared),
        expected_failures=window.named + shared,
        usual_failures=exposure * rate,
        shared=shared,
        share_of_lemons=share,
        fleet_rate_per_day=rate,
    )


def _fleet_rate(count: Floats, exposure: Floats) -> float:
    """Failures per node-day of the ordinary node: the worst 3 % are left out, they are what we look for."""
    if count.size == 0:
        return MIN_RATE_PER_DAY
    limit = np.quantile(count / exposure, 0.97)
    keep = count / exposure <= limit
    return float(max(count[keep].sum() / exposure[keep].sum(), MIN_RATE_PER_DAY))


def _log_likelihoods(count: Floats, usual: Floats) -> tuple[Floats, Floats]:
    return (
        _log_mixture(count, usual, _HEALTHY_FACTORS, _HEALTHY_WEIGHTS),
        _log_mixture(count, usual, LEMON_FACTORS, _LEMON_WEIGHTS),
    )


def _log_mixture(count: Floats, usual: Floats, factors: Floats, weights: Floats) -> Floats:
    """log P(count) for a Poisson whose mean is usual x factor, averaged over the factors; counts may be fractions."""
    mean = usual[:, None] * factors[None, :]
    log_p = count[:, None] * np.log(mean) - mean - special.gammaln(count + 1.0)[:, None]
    mixed: Floats = special.logsumexp(log_p, b=weights[None, :], axis=1)
    return mixed


def _share(probability: Floats) -> float:
    """The fleet's share of lemons: what it shows, held by the prior."""
    nodes = probability.size
    return float(np.clip((probability.sum() + PRIOR_SHARE * PRIOR_NODES) / (nodes + PRIOR_NODES), 1e-4, 0.2))


def _intensity(count: Floats, exposure: Floats, rate: float, probability: Floats) -> Floats:
    """Posterior mean failure rate of each node, per day: what makes one more likely the culprit than its peers."""
    as_lemon = (count + 1.0) / (exposure + 1.0 / (30.0 * rate))
    as_healthy = (count + 2.0) / (exposure + 2.0 / rate)
    mean: Floats = probability * as_lemon + (1 - probability) * as_healthy
    return mean


def _share_out(
    gangs: Sequence[tuple[npt.NDArray[np.int64], float]], intensity: Floats, like: Floats
) -> Floats:
    shared = np.zeros_like(like)
    for nodes, hardware in gangs:
        part = intensity[nodes]
        # The part that stands for everybody else's causes: without it the likeliest node of a gang would
        # be given the whole failure, and each gift would make the next one larger.
        rest = np.median(part) * nodes.size
        shared[nodes] += hardware * part / (part.sum() + rest)
    return shared


MIN_EPISODES = 3
MIN_DAYS = 2
UNPROVEN = 0.49


def _with_proof(probability: Floats, window: Window, shared: Floats) -> Floats:
    """Two failures, or any number on one day, are not proof: such a node is at most a suspect."""
    enough = (window.episodes >= MIN_EPISODES) & (window.days >= MIN_DAYS)
    capped: Floats = np.where(enough, probability, np.minimum(probability, UNPROVEN))
    return capped
