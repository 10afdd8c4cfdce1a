"""The probability that a node is a lemon, by exposure, and uncertain if little was seen.

An ordinary node's hardware failures are Poisson with a rate that scatters (log-normally) around the fleet's. A lemon was
such a node until some day, and has failed 20 to 1,000 times as often since. Day and factor are unknown, so both are summed
over: three good weeks do not excuse a node that broke last week. A third kind was bad for a while and has been repaired,
reported or not. The share of lemons is learnt from the fleet, so that a fleet without lemons names none.

Evidence, each as a likelihood ratio:

* Failures whose verdict names the node, as episodes (`episodes.py`). Each is compared with how often ordinary nodes of
  this fleet get such a verdict: many "possible" verdicts prove little, and so do failures of one cause on many nodes.
* The same part again. Most lemons have one bad part (a GPU, a DIMM, an HCA), ordinary failures are of any part:
  given k failures, sum over parts c of P(c) x prod(own part or any) against prod(any).
* Gang failures that name no node (`gangs.py`).
* Minor signs (`trends.py`), tempered and capped.

The window may be longer than the 28 days of the paper's signals: the onset is part of the model, so old failures of a
node without new ones acquit it.
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
"""Prior share of lemons (RSC-1: 24 of 2,000; arXiv 2410.21680)."""
PRIOR_NODES = 300.0
"""Weight of the prior share, in nodes."""
ROUNDS = 3
"""Rounds of probabilities and rates; a fourth changes no probability by more than about a hundredth."""
LEMON_FROM = 0.75
"""A node of this probability or more is named: three to one, and proven (`proof.py`).

Chosen on development fleets (docs/lemon_evaluation.md): most named nodes are far above it.
"""


@dataclass(frozen=True, kw_only=True)
class LemonWindow:
    """The window's facts by node (arrays have one entry per node)."""

    exposure_days: Floats
    """Node-days in use by jobs (not calendar days)."""
    named: Floats
    """Failure episodes whose verdict names this node, each weighted by the verdict's confidence (0..1)."""
    episodes: Ints
    """The same, unweighted."""
    days: Ints
    """Distinct days on which they fell."""
    gangs: Sequence[tuple[Ints, float]] = field(default=())
    """Failures without a named node: (node indices, probability that hardware caused it)."""
    auxiliary: Floats | None = None
    """Further evidence as a log likelihood ratio per node (trends, recurrence), already tempered."""
    span_days: float = 28.0
    """Calendar days in the window."""
    failures: Failures | None = None
    """The named failures one by one. Preferred: with it `named`, `episodes` and `days` are not read."""
    gang_ages_days: Floats | None = None
    """Age of each of `gangs`; None = unknown."""
    place: Ints | None = None
    """Shared place per node (rack, pod, switch), as a number; None = unknown."""
    daily_exposure_days: Floats | None = None
    """(nodes, days) use by calendar day, newest first; None = even over the window."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The result by node."""

    probability: Floats
    expected_failures: Floats
    """Failures blamed on the node: the named ones and its share of the unnamed."""
    usual_failures: Floats
    """Usual failures of a node of this fleet with this exposure."""
    shared: Floats
    """Its share of the unnamed failures."""
    named: Floats
    """Named failure episodes, each weighted by its verdict's confidence."""
    episodes: Ints
    """The same, unweighted: failures within two days of an episode's first are that episode."""
    repeats: Ints
    """The largest number of episodes of one part."""
    since_days: Floats
    """Expected days since the onset, if it is a lemon."""


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
    """The failures one by one; if only counts are given, spread evenly over the window."""
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
    """The fleet's share of lemons, with the prior."""
    nodes = probability.size
    return float(np.clip((probability.sum() + PRIOR_SHARE * PRIOR_NODES) / (nodes + PRIOR_NODES), 1e-4, 0.2))
