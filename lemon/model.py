"""The probability that a node is a lemon: exposure-aware, uncertain where little was seen.

An ordinary node's hardware failures are Poisson with a rate that scatters (log-normally) around the
fleet's. A lemon was such a node until some day, and has failed 20 to 1,000 times as often since. Neither
the day nor the factor is known, so both are summed over: a node that broke last week is not excused by
three good weeks before it. A third kind was bad for a while and has been mended, told or not. The share of
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

from probing_cluster.lemon import episodes
from probing_cluster.lemon.episodes import Failures
from probing_cluster.lemon.gangs import Gangs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HEALTHY_SIGMA = 0.8
"""Scatter of healthy nodes' rates: log-normal sigma; loads, ages and racks differ."""
LEMON_FACTORS = np.geomspace(20.0, 1000.0, 10)
"""Rates of lemons, relative to the fleet's: log-uniform.

RSC-1's 1.2 % had 10 of 14 failures (512-GPU jobs failed 14 % of the time with them, 4 % without): 208 times an
ordinary node's on average (arXiv 2410.21680).
"""
ONSETS_DAYS = np.array([4.0, 8.0, 12.0, 16.0, 22.0, 28.0, 42.0, 56.0, 84.0, 112.0])
"""Days since a lemon turned bad: any time in the last four months, one as likely as the other."""
MENDED = 0.5
"""For each lemon, how many nodes were one within those months and were mended: our assumption."""
MENDED_AT = (2, 5)
"""When, as places in ONSETS_DAYS: 12 or 28 days ago."""
PRIOR_SHARE = 0.012
"""Share of lemons before anything is known (RSC-1: 24 of 2,000; arXiv 2410.21680)."""
PRIOR_NODES = 300.0
"""How many nodes' worth of belief the prior share has."""
MIN_RATE_PER_DAY = 2e-4
"""A fleet that has hardly failed is not taken for one that cannot."""
ROUNDS = 3
HINT = 0.05
"""Nodes with less than this from unnamed failures (less than one of a gang of four) are taken for quiet."""
LEMON_FROM = 0.75
"""A node of this probability or more is named: three to one, and proven (`_with_proof`).

Chosen on development fleets (docs/lemon_evaluation.md): most named nodes are far above it.
"""

_Z, _W = np.polynomial.hermite_e.hermegauss(7)
_HEALTHY_FACTORS = np.exp(HEALTHY_SIGMA * _Z - HEALTHY_SIGMA**2 / 2)
_HEALTHY_LOG_WEIGHTS = np.log(_W / _W.sum())
_ONSET_LOG_WEIGHTS = np.log(np.diff(ONSETS_DAYS, prepend=0.0) / ONSETS_DAYS[-1])
_EXTRA = LEMON_FACTORS - 1.0


@dataclass(frozen=True, kw_only=True)
class Window:
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
    share_of_lemons: float
    fleet_rate_per_day: float
    named: Floats
    """Named failure episodes, each weighted by its verdict's confidence."""
    episodes: Ints
    """The same, unweighted: failures within two days of an episode's first are that episode."""
    repeats: Ints
    """The most episodes of one and the same part."""
    since_days: Floats
    """Were it a lemon: for how many days, by the mean of what is believed."""


def score(window: Window) -> Scores:
    """Probabilities for one window."""
    named = episodes.merged(_failures(window))
    gangs = Gangs.of(window.gangs, window.gang_ages_days)
    seen = _Seen.of(window, named, gangs)
    nodes = window.exposure_days.size
    count = np.bincount(named.node, weights=named.weight, minlength=nodes).astype(np.float64)
    shared = np.zeros(nodes)
    probability = np.zeros(nodes)
    share = PRIOR_SHARE
    since = np.zeros(nodes)
    mean = np.zeros(nodes)
    rate = _Rate.of(seen, named, window, gangs.heard, np.minimum(1.0, 1.0 / np.maximum(seen.episodes, 1.0)))
    for turn in range(ROUNDS):
        if turn:
            rate = _Rate.of(seen, named, window, gangs.heard, 1.0 - probability)
        else:
            mean = np.full(nodes, rate.unnamed)
        noise = _noise(gangs, float((probability * shared).sum()), seen, rate)
        log_odds, factor, since = _log_odds(seen, named, gangs, rate, mean, share, noise)
        odds = log_odds + np.log(share / (1 - share))
        if window.auxiliary is not None:
            odds = odds + window.auxiliary
        probability = special.expit(odds)
        share = _share(probability)
        mean = rate.unnamed * (1.0 + probability * (factor - 1.0))
        shared = gangs.share_out(mean, noise, nodes)
    repeats = episodes.repeats(named, nodes)
    return Scores(
        probability=_with_proof(probability, window.auxiliary, named, repeats, shared),
        expected_failures=count + shared,
        usual_failures=seen.exposure * (rate.hardware + rate.unnamed),
        shared=shared,
        share_of_lemons=share,
        fleet_rate_per_day=rate.hardware + rate.unnamed,
        named=count,
        episodes=seen.episodes.astype(np.int64),
        repeats=repeats,
        since_days=since,
    )


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What does not change from round to round.

    Most nodes have failed nobody: those share a few rows by exposure, all others have their own.
    """

    exposure: Floats
    episodes: Floats
    at: Ints
    """Per node: its row in what follows."""
    row: Ints
    """Per node: its own row; -1 where it has none of its own."""
    of_row: Floats
    """(rows): exposure."""
    after: Floats
    """(rows, onsets): exposure since each possible onset."""
    count: Floats
    """(rows): episodes."""
    count_after: Floats
    """(rows, onsets): episodes since each possible onset."""
    log_parts: Floats
    """(rows, onsets): log likelihood ratio of which parts failed since."""
    bin: Ints
    """Per episode: the first onset it comes after."""
    gang_bin: Ints
    """Per pair of gang and node: the same."""
    surplus: Floats
    beside: Floats

    @classmethod
    def of(cls, window: Window, named: Failures, gangs: Gangs) -> _Seen:
        exposure = np.maximum(window.exposure_days, 1e-9)
        nodes = exposure.size
        count = np.bincount(named.node, minlength=nodes).astype(np.float64)
        own = (count > 0) | (gangs.hint(nodes) >= HINT)
        example, at, row = _rows(exposure, own)
        bins = _bins(named.age_days)
        surplus, beside = episodes.crowding(named, window.span_days, window.place)
        return cls(
            exposure=exposure,
            episodes=count,
            at=at,
            row=row,
            of_row=exposure[example],
            after=_exposure_after(window, exposure)[example],
            count=np.where(own[example], count[example], 0.0),
            count_after=_since(row[named.node], bins, np.ones(bins.size), example.size),
            log_parts=_log_parts(named, bins, row, example.size),
            bin=bins,
            gang_bin=_bins(gangs.age_days)[gangs.event],
            surplus=surplus,
            beside=beside,
        )


def _rows(exposure: Floats, own: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """An example node per row, each node's row, and its own row or -1."""
    listed = np.flatnonzero(own)
    quiet = np.flatnonzero(~own)
    step = np.round(np.log2(exposure[quiet]) * 8).astype(np.int64)
    _, first, shared = np.unique(step, return_index=True, return_inverse=True)
    row = np.full(exposure.size, -1, np.int64)
    row[listed] = np.arange(listed.size)
    at = row.copy()
    at[quiet] = listed.size + shared.reshape(-1)
    return np.concatenate([listed, quiet[first]]), at, row


@dataclass(frozen=True, kw_only=True)
class _Rate:
    """What ordinary nodes have per day in use."""

    levels: Floats
    """Named failures by the verdict's level, rightly named or not."""
    hardware: float
    """Named hardware failures."""
    unnamed: float
    """Hardware failures that name nobody and are heard (`gangs.LARGEST`)."""
    mix: Floats
    """Levels of rightly named hardware failures."""

    @classmethod
    def of(cls, seen: _Seen, named: Failures, window: Window, heard: float, ordinary: Floats) -> _Rate:
        """`heard`: share of unnamed failures used. `ordinary`: each node's probability of being one."""
        level = episodes.level(named.weight)
        weight = ordinary[named.node]
        exposure = float((ordinary * seen.exposure).sum())
        mix = episodes.hardware_mix(named)
        total = max(weight.sum() / max(exposure, 1e-9), MIN_RATE_PER_DAY)
        counts = np.bincount(level, weights=weight, minlength=mix.size) + mix
        right = float((weight * named.weight).sum() / weight.sum()) if weight.sum() > 0 else 1.0
        hardware = max(total * right, MIN_RATE_PER_DAY)
        frac = _unnamed_frac(window, named)
        return cls(
            levels=total * counts / counts.sum(),
            hardware=hardware,
            unnamed=hardware * frac / (1.0 - frac) * heard,
            mix=mix,
        )


def _failures(window: Window) -> Failures:
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


def _bins(age_days: Floats) -> Ints:
    bins: Ints = np.minimum(np.searchsorted(ONSETS_DAYS, age_days), ONSETS_DAYS.size - 1).astype(np.int64)
    return bins


def _since(row: Ints, bins: Ints, values: Floats, rows: int) -> Floats:
    """(rows, onsets): sums of `values` since each onset."""
    flat = np.bincount(row * ONSETS_DAYS.size + bins, weights=values, minlength=rows * ONSETS_DAYS.size)
    summed: Floats = flat.reshape(rows, ONSETS_DAYS.size).cumsum(axis=1)
    return summed


def _exposure_after(window: Window, exposure: Floats) -> Floats:
    if window.daily_exposure_days is None:
        return exposure[:, None] * np.minimum(ONSETS_DAYS / window.span_days, 1.0)[None, :]
    daily = np.cumsum(window.daily_exposure_days, axis=1)
    last = np.clip(ONSETS_DAYS.astype(np.int64), 1, daily.shape[1]) - 1
    answer: Floats = daily[:, last].astype(np.float64)
    return answer


def _log_parts(named: Failures, bins: Ints, row: Ints, rows: int) -> Floats:
    """Which parts failed, if one of them is the lemon's own: log sum_c P(c) prod_i (own [c_i = c]/P(c) + 1 - own)."""
    known = named.part >= 0
    if not known.any():
        return np.zeros((rows, ONSETS_DAYS.size))
    own = episodes.OWN_PART
    usual = episodes.part_share(named)[known]
    node, part, first = row[named.node[known]], named.part[known], bins[known]
    pair, inverse = np.unique(np.stack([node, part]), axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    share = np.ones(pair.shape[1])
    share[inverse] = usual
    of_pair = _since(inverse, first, np.ones(first.size), share.size)
    total = _since(node, first, np.ones(first.size), rows)
    same = share[:, None] * ((own / share + 1 - own)[:, None] ** of_pair) * (1 - own) ** -of_pair
    seen = np.where(of_pair > 0, share[:, None], 0.0)
    same = np.where(of_pair > 0, same, 0.0)
    by_node = np.zeros_like(total)
    np.add.at(by_node, pair[0], same - seen)
    one = np.log(np.maximum(1.0 + by_node, 1e-12)) + total * np.log(1 - own)
    log_parts: Floats = np.logaddexp(np.log(episodes.HAS_OWN_PART) + one, np.log(1 - episodes.HAS_OWN_PART))
    return log_parts


def _log_odds(
    seen: _Seen, named: Failures, gangs: Gangs, rate: _Rate, mean: Floats, share: float, noise: float
) -> tuple[Floats, Floats, Floats]:
    """Per node: log likelihood ratio of lemon to ordinary, and as a lemon its mean factor and days since onset."""
    level = episodes.level(named.weight)
    ordinary = rate.levels[level] * seen.surplus + seen.beside
    per_extra = rate.hardware * rate.mix[level] / ordinary
    pairs = np.flatnonzero(seen.row[gangs.node] >= 0)
    at = seen.row[gangs.node[pairs]] * ONSETS_DAYS.size + seen.gang_bin[pairs]
    named_at = seen.row[named.node] * ONSETS_DAYS.size + seen.bin
    per_gang = rate.unnamed / (gangs.rate_beside(mean, noise)[pairs] + rate.unnamed)
    rows, usual = seen.after.shape[0], float(rate.levels.sum())
    rest = _log_ordinary(seen.count[:, None] - seen.count_after, usual * (seen.of_row[:, None] - seen.after))
    rest += seen.log_parts + _ONSET_LOG_WEIGHTS[None, :] - usual * seen.after
    bad = np.empty((_EXTRA.size, rows, ONSETS_DAYS.size))
    both, spots = np.concatenate([named_at, at]), rows * ONSETS_DAYS.size
    each = np.log1p(_EXTRA[:, None] * np.concatenate([per_extra, per_gang])[None, :])
    for column in range(_EXTRA.size):
        bad[column] = np.bincount(both, each[column], minlength=spots).reshape(rows, ONSETS_DAYS.size)
    np.cumsum(bad, axis=2, out=bad)
    bad -= (_EXTRA * (rate.hardware + rate.unnamed))[:, None, None] * seen.after[None]
    log_p = bad + rest[None]
    top = log_p.max(axis=(0, 2))
    weight = np.exp(log_p - top[None, :, None])
    by_factor = weight.sum(axis=2)
    total = by_factor.sum(axis=0)
    healthy = _log_ordinary(seen.count[:, None], usual * seen.of_row[:, None])[:, 0]
    mended = np.zeros(rows)
    for end in MENDED_AT:
        # Bad from an earlier onset until then: what came after is an ordinary node's.
        mended += np.exp(log_p[:, :, end + 1 :] - bad[:, :, end : end + 1] - top[None, :, None]).sum(
            axis=(0, 2)
        )
    log_mended = np.log(mended / len(MENDED_AT) / _EXTRA.size + 1e-300) + top
    ordinary_now = np.logaddexp(healthy, log_mended + np.log(MENDED * share / (1 - share)))
    odds = np.log(total / _EXTRA.size) + top - ordinary_now
    factor = (LEMON_FACTORS @ by_factor) / total
    since = (weight.sum(axis=0) @ ONSETS_DAYS) / total
    return odds[seen.at], factor[seen.at], since[seen.at]


def _log_ordinary(count: Floats, expected: Floats) -> Floats:
    """log P(so many failures | an ordinary node), the same factors left out as for lemons."""
    log_p = (
        count[..., None] * np.log(_HEALTHY_FACTORS)
        - expected[..., None] * _HEALTHY_FACTORS
        + _HEALTHY_LOG_WEIGHTS
    )
    top = log_p.max(axis=-1)
    answer: Floats = top + np.log(np.exp(log_p - top[..., None]).sum(axis=-1))
    return answer


def _noise(gangs: Gangs, by_lemons: float, seen: _Seen, rate: _Rate) -> float:
    """Failures per node-day that name nobody and are nobody's hardware: what the nodes do not explain."""
    left = (gangs.size.size - by_lemons) / max(float(seen.exposure.sum()), 1e-9)
    return max(left - rate.unnamed, 0.5 * rate.unnamed)


def _unnamed_frac(window: Window, named: Failures) -> float:
    """Share of hardware failures whose verdict names nobody."""
    unnamed = sum(hardware for _, hardware in window.gangs)
    return float(np.clip((unnamed + 1.0) / (unnamed + named.weight.sum() + 3.0), 0.05, 0.8))


def _share(probability: Floats) -> float:
    """The fleet's share of lemons: what it shows, held by the prior."""
    nodes = probability.size
    return float(np.clip((probability.sum() + PRIOR_SHARE * PRIOR_NODES) / (nodes + PRIOR_NODES), 1e-4, 0.2))


MIN_SIGNS = 3
MIN_EPISODES = 2
MIN_SPAN_DAYS = 4.0
"""A fault that nobody has mended yet can come back for some days: two episodes closer than this are not proof."""
STRONG_SIGN = 2.0
"""A log likelihood ratio of this much from further signs stands for one failure."""
UNPROVEN = 0.49


def _with_proof(
    probability: Floats, auxiliary: Floats | None, named: Failures, repeats: Ints, shared: Floats
) -> Floats:
    """Two failures within four days, or any number within two, are not proof: such a node is at most a suspect.

    Nor are two far apart without a third sign: the same part again, a full share of unnamed failures, or a trend.
    """
    nodes = probability.size
    count = np.bincount(named.node, minlength=nodes)
    oldest, newest = np.zeros(nodes), np.full(nodes, np.inf)
    np.maximum.at(oldest, named.node, named.age_days)
    np.minimum.at(newest, named.node, named.age_days)
    signs = count + (repeats >= 2) + np.floor(shared)
    if auxiliary is not None:
        signs = signs + (auxiliary >= STRONG_SIGN)
    apart = (count > MIN_EPISODES) | (oldest - newest >= MIN_SPAN_DAYS)
    enough = (signs >= MIN_SIGNS) & (count >= MIN_EPISODES) & apart
    capped: Floats = np.where(enough, probability, np.minimum(probability, UNPROVEN))
    return capped
