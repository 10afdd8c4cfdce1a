"""The probability that a node is a lemon: exposure-aware, uncertain where little was seen.

Each node's hardware failures in the window are Poisson with its own rate. Healthy nodes' rates
scatter (log-normally) around the fleet's, lemons' rates lie anywhere from 10 to 1,000 times above it.
The share of lemons is learnt from the fleet itself, so that a fleet without any names none.

A failure whose verdict names the node counts by the verdict's confidence. A failure of a gang that
names nobody says for each of its nodes how much likelier it is if that node were bad, given what is
known of the others: two nodes tell a lot, five hundred hardly anything. The others' rates are those
of the round before (mean field), so nobody's evidence is counted twice.
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
ROUNDS = 4

_Z, _W = np.polynomial.hermite_e.hermegauss(15)
_HEALTHY_FACTORS = np.exp(HEALTHY_SIGMA * _Z - HEALTHY_SIGMA**2 / 2)
_HEALTHY_WEIGHTS = _W / _W.sum()
_LEMON_WEIGHTS = np.full(LEMON_FACTORS.size, 1.0 / LEMON_FACTORS.size)
_FACTORS = np.concatenate([_HEALTHY_FACTORS, LEMON_FACTORS])
_HEALTHY = slice(0, _HEALTHY_FACTORS.size)
_LEMON = slice(_HEALTHY_FACTORS.size, None)


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
    probability = np.full_like(exposure, PRIOR_SHARE)
    share = PRIOR_SHARE
    gangs = _Gangs.of(window.gangs)
    rate = _fleet_rate(window.named, exposure)
    mean = np.full_like(exposure, rate)
    for _ in range(ROUNDS):
        rate = _fleet_rate(window.named + shared, exposure)
        unnamed = _unnamed_frac(window)
        log_p = _log_named(window.named, exposure * rate * (1 - unnamed), exposure * rate * unnamed)
        log_p += gangs.log_ratio(mean * unnamed, rate * unnamed, exposure.size)
        healthy = special.logsumexp(log_p[:, _HEALTHY], b=_HEALTHY_WEIGHTS[None, :], axis=1)
        lemon = special.logsumexp(log_p[:, _LEMON], b=_LEMON_WEIGHTS[None, :], axis=1)
        odds = lemon - healthy + np.log(share / (1 - share))
        if window.auxiliary is not None:
            odds = odds + window.auxiliary
        probability = special.expit(odds)
        share = _share(probability)
        mean = rate * _mean_factor(log_p, probability)
        shared = gangs.share_out(mean * unnamed, rate * unnamed, exposure.size)
    return Scores(
        probability=_with_proof(probability, window, shared),
        expected_failures=window.named + shared,
        usual_failures=exposure * rate,
        shared=shared,
        share_of_lemons=share,
        fleet_rate_per_day=rate,
    )


@dataclass(frozen=True)
class _Gangs:
    """All unnamed failures as flat (event, node) pairs."""

    event: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    other_odds: Floats
    """Per event: odds that no hardware did it."""
    size: Floats
    """Per event: nodes."""

    @classmethod
    def of(cls, gangs: Sequence[tuple[npt.NDArray[np.int64], float]]) -> _Gangs:
        sizes = np.array([nodes.size for nodes, _ in gangs], np.int64)
        hardware = np.clip(np.array([w for _, w in gangs], np.float64), 0.01, 0.99)
        return cls(
            event=np.repeat(np.arange(sizes.size), sizes),
            node=np.concatenate([n for n, _ in gangs]) if gangs else np.zeros(0, np.int64),
            other_odds=(1 - hardware) / hardware,
            size=sizes.astype(np.float64),
        )

    def _background(self, usual: float) -> Floats:
        """Per event: the rate at which this gang fails for other reasons, in failures per day."""
        return self.other_odds * self.size * usual

    def log_ratio(self, mean: Floats, usual: float, nodes: int) -> Floats:
        """(nodes, factors): sum over a node's unnamed failures of log((others + node's rate) / (others + usual))."""
        answer = np.zeros((nodes, _FACTORS.size))
        if self.event.size == 0:
            return answer
        total = np.bincount(self.event, weights=mean[self.node], minlength=self.size.size)
        others = (total + self._background(usual))[self.event] - mean[self.node]
        others = np.maximum(others, 1e-3 * usual)
        for column, factor in enumerate(_FACTORS):
            gain = np.log((others + usual * factor) / (others + usual))
            answer[:, column] = np.bincount(self.node, weights=gain, minlength=nodes)
        return answer

    def share_out(self, mean: Floats, usual: float, nodes: int) -> Floats:
        """Each node's expected part of the unnamed failures."""
        if self.event.size == 0:
            return np.zeros(nodes)
        total = np.bincount(self.event, weights=mean[self.node], minlength=self.size.size)
        part = mean[self.node] / (total + self._background(usual))[self.event]
        shares: Floats = np.bincount(self.node, weights=part, minlength=nodes).astype(np.float64)
        return shares


def _unnamed_frac(window: Window) -> float:
    """Share of hardware failures whose verdict names nobody."""
    unnamed = sum(hardware for _, hardware in window.gangs)
    return float(np.clip((unnamed + 1.0) / (unnamed + window.named.sum() + 3.0), 0.05, 0.8))


def _log_named(named: Floats, usual_named: Floats, usual_unnamed: Floats) -> Floats:
    """(nodes, factors): log P(named failures and this much exposure | rate = fleet's x factor), up to a constant."""
    mean = usual_named[:, None] * _FACTORS[None, :]
    log_p: Floats = (
        named[:, None] * np.log(mean) - mean - usual_unnamed[:, None] * _FACTORS[None, :]
    ) - special.gammaln(named + 1.0)[:, None]
    return log_p


def _mean_factor(log_p: Floats, probability: Floats) -> Floats:
    """Posterior mean of a node's rate, relative to the fleet's."""

    def mean(part: slice, weights: Floats) -> Floats:
        weight = special.softmax(log_p[:, part] + np.log(weights)[None, :], axis=1)
        value: Floats = weight @ _FACTORS[part]
        return value

    answer: Floats = probability * mean(_LEMON, _LEMON_WEIGHTS) + (1 - probability) * mean(
        _HEALTHY, _HEALTHY_WEIGHTS
    )
    return answer


def _fleet_rate(count: Floats, exposure: Floats) -> float:
    """Failures per node-day of the ordinary node: the worst 3 % are left out, they are what we look for."""
    if count.size == 0:
        return MIN_RATE_PER_DAY
    limit = np.quantile(count / exposure, 0.97)
    keep = count / exposure <= limit
    return float(max(count[keep].sum() / exposure[keep].sum(), MIN_RATE_PER_DAY))


def _share(probability: Floats) -> float:
    """The fleet's share of lemons: what it shows, held by the prior."""
    nodes = probability.size
    return float(np.clip((probability.sum() + PRIOR_SHARE * PRIOR_NODES) / (nodes + PRIOR_NODES), 1e-4, 0.2))


MIN_SIGNS = 3
MIN_EPISODES = 2
MIN_DAYS = 2
STRONG_SIGN = 2.0
"""A log likelihood ratio of this much from further signs stands for one failure."""
UNPROVEN = 0.49


def _with_proof(probability: Floats, window: Window, shared: Floats) -> Floats:
    """Two failures, or any number on one day, are not proof: such a node is at most a suspect.

    A third sign can be another named failure, a full share of unnamed ones, or a trend of its own.
    """
    signs = window.episodes + np.floor(shared)
    if window.auxiliary is not None:
        signs = signs + (window.auxiliary >= STRONG_SIGN)
    enough = (signs >= MIN_SIGNS) & (window.episodes >= MIN_EPISODES) & (window.days >= MIN_DAYS)
    capped: Floats = np.where(enough, probability, np.minimum(probability, UNPROVEN))
    return capped
