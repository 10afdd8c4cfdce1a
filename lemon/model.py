"""The probability that a node is a lemon: exposure-aware, uncertain where little was seen.

An ordinary node's hardware failures are Poisson with a rate that scatters (log-normally) around the
fleet's. A lemon was such a node until some day, and has failed 20 to 1,000 times as often since. Neither
the day nor the factor is known, so both are summed over: a node that broke last week is not excused by
three good weeks before it. A third kind was bad for a while and has been mended, reported or not. The share of
lemons is learnt from the fleet, so that one without any names none.

Evidence, each as a likelihood ratio:

* Failures whose verdict names the node, as episodes (`episodes.py`). How much one says follows from how
  often ordinary nodes of this fleet get such a verdict: where "possible" ones are dealt out freely, they
  prove little. Failures of the same cause on many nodes at once prove little, too.
* The same part again. Most lemons have one bad part (a GPU, a DIMM, an HCA), ordinary failures are of any:
  given k failures, sum over parts c of P(c) x prod(own part or any) against prod(any).
* Gang failures that name nobody (`gangs.py`).
* Minor signs (`trends.py`), tempered and capped.

The window may be longer than the 28 days of the paper's signals: since the onset is part of the model, old
failures of a node that has been quiet since acquit themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import special

from probing_cluster.lemon import episodes, likelihood, proof
from probing_cluster.lemon.episodes import Failures
from probing_cluster.lemon.gangs import Gangs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PRIOR_SHARE = 0.012
"""Share of lemons before anything is known (RSC-1: 24 of 2,000; arXiv 2410.21680)."""
PRIOR_NODES = 300.0
"""How many nodes' worth of belief the prior share has."""
ROUNDS = 3
"""Rounds of belief and rates; a fourth changes no probability by more than a hundredth or so."""
LEMON_FROM = 0.75
"""A node of this probability or more is named: three to one, and proven (`proof.py`).

Chosen on development fleets (docs/lemon_evaluation.md): most named nodes are far above it.
"""


@dataclass(frozen=True, kw_only=True)
class LemonWindow:
    """What the window holds, node by node (arrays have one entry per node)."""

    exposure_days: Floats
    """Node-days in use by jobs (not calendar days)."""
    named: Floats
    """Failure episodes whose verdict names this node, each weighted by the verdict's confidence (0..1)."""
    episodes: Ints
    """The same, unweighted."""
    days: Ints
    """Distinct days on which they fell."""
    gangs: Sequence[tuple[Ints, float]] = field(default=())
    """Failures that name nobody: (node indices, probability that hardware caused it)."""
    auxiliary: Floats | None = None
    """Further evidence as a log likelihood ratio per node (trends, recurrence), already tempered."""
    span_days: float = 28.0
    """Calendar days in the window."""
    failures: Failures | None = None
    """The named failures one by one. Preferred: with it `named`, `episodes` and `days` are not read."""
    gang_ages_days: Floats | None = None
    """Age of each of `gangs`; None = unknown."""
    place: Ints | None = None
    """What nodes share that can fail (rack, pod, switch), as a number per node; None = unknown."""
    daily_exposure_days: Floats | None = None
    """(nodes, days) use by calendar day, newest first; None = even over the window."""


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
    named: Floats
    """Named failure episodes, each weighted by its verdict's confidence."""
    episodes: Ints
    """The same, unweighted: failures within two days of an episode's first are that episode."""
    repeats: Ints
    """The most episodes of one and the same part."""
    since_days: Floats
    """Were it a lemon: for how many days, by the mean of what is believed."""


def score(window: LemonWindow) -> Scores:
    """Probabilities for one window."""
    named = episodes.merged(_failures(window))
    used = likelihood.Exposure(
        days=window.exposure_days, span_days=window.span_days, daily_days=window.daily_exposure_days
    )
    gangs = Gangs.of(window.gangs, window.gang_ages_days)
    facts = likelihood.NodeRows.of(used, named, gangs, window.place)
    nodes = window.exposure_days.size
    count = np.bincount(named.node, weights=named.weight, minlength=nodes).astype(np.float64)
    shared = np.zeros(nodes)
    probability = np.zeros(nodes)
    share = PRIOR_SHARE
    since = np.zeros(nodes)
    mean = np.zeros(nodes)
    rate = likelihood.LemonRate.of(
        facts, named, gangs, np.minimum(1.0, 1.0 / np.maximum(facts.episodes, 1.0))
    )
    for number in range(ROUNDS):
        if number:
            rate = likelihood.LemonRate.of(facts, named, gangs, 1.0 - probability)
        else:
            mean = np.full(nodes, rate.unnamed)
        noise = likelihood.noise_per_day(gangs, float((probability * shared).sum()), facts, rate)
        log_odds, factor, since = likelihood.log_odds(facts, named, gangs, rate, mean, share, noise)
        odds = log_odds + np.log(share / (1 - share))
        if window.auxiliary is not None:
            odds = odds + window.auxiliary
        probability = special.expit(odds)
        share = _share(probability)
        mean = rate.unnamed * (1.0 + probability * (factor - 1.0))
        shared = gangs.share_out(mean, noise, nodes)
    repeats = episodes.repeats(named, nodes)
    return Scores(
        probability=proof.cap_unproven(probability, window.auxiliary, named, repeats, shared),
        expected_failures=count + shared,
        usual_failures=facts.exposure * (rate.hardware + rate.unnamed),
        shared=shared,
        named=count,
        episodes=facts.episodes.astype(np.int64),
        repeats=repeats,
        since_days=since,
    )


def _failures(window: LemonWindow) -> Failures:
    """The failures one by one; where only counts are given, spread evenly over the window."""
    if window.failures is not None:
        return window.failures
    counts = np.minimum(window.episodes, window.days)
    node = np.repeat(np.arange(counts.size), counts)
    nth = np.arange(node.size) - np.repeat(np.cumsum(counts) - counts, counts)
    weight = window.named / np.maximum(window.episodes, 1)
    unknown = np.full(node.size, -1, np.int64)
    return Failures(
        node=node,
        age_days=(nth + 0.5) / np.maximum(counts[node], 1) * window.span_days,
        weight=np.minimum(weight[node], 1.0),
        part=unknown,
        cause=unknown,
    )


def _share(probability: Floats) -> float:
    """The fleet's share of lemons: what it shows, held by the prior."""
    nodes = probability.size
    return float(np.clip((probability.sum() + PRIOR_SHARE * PRIOR_NODES) / (nodes + PRIOR_NODES), 1e-4, 0.2))
