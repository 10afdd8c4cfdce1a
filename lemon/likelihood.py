"""Likelihood of a node's failures on a lemon and on an ordinary node, summed over onset and rate.

Three hypotheses for each node: ordinary throughout; bad since some day, at 20 to 1,000 times an ordinary node's rate; bad
for a while and repaired since. Arrays run over rows (each node with failures, and a few rows that stand for all others
by exposure), possible onsets and rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probing_cluster.lemon import episodes
from probing_cluster.lemon.episodes import Failures
from probing_cluster.lemon.gangs import Gangs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HEALTHY_SIGMA = 0.8
"""Log-normal sigma of healthy nodes' rates: loads, ages and racks differ."""
LEMON_FACTORS = np.geomspace(20.0, 1000.0, 10)
"""Rates of lemons relative to an ordinary node's: log-uniform.

RSC-1's 1.2 % had 10 of 14 failures (512-GPU jobs failed 14 % of the time with them, 4 % without): 208 times an
ordinary node's on average (arXiv 2410.21680).
"""
ONSETS_DAYS = np.array([4.0, 8.0, 12.0, 16.0, 22.0, 28.0, 42.0, 56.0, 84.0, 112.0])
"""Days since a lemon turned bad: uniform over the last four months."""
MENDED = 0.5
"""Repaired lemons within those months, per present lemon: our assumption."""
MENDED_AT = (2, 5)
"""Times of repair, as indices in ONSETS_DAYS: 12 or 28 days ago."""
MIN_RATE_PER_DAY = 2e-4
"""Least rate, so that a fleet with hardly a failure is not taken to be infallible."""
USUAL_RATE_PER_DAY = 0.01
"""Prior rate: named failures of an ordinary node per day in use."""
PRIOR_DAYS = 1.0
"""Weight of the prior rate, in days in use: little beside a fleet's weeks, but enough beside one bad node of three."""
HINT = 0.05
"""Nodes with a lower hint from unnamed failures (less than one of a gang of four) count as free of failures."""

_Z, _W = np.polynomial.hermite_e.hermegauss(7)
_HEALTHY_FACTORS = np.exp(HEALTHY_SIGMA * _Z - HEALTHY_SIGMA**2 / 2)
_HEALTHY_LOG_WEIGHTS = np.log(_W / _W.sum())
_ONSET_LOG_WEIGHTS = np.log(np.diff(ONSETS_DAYS, prepend=0.0) / ONSETS_DAYS[-1])
_EXTRA = LEMON_FACTORS - 1.0


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """The nodes' use by jobs."""

    days: Floats
    """Node-days in the window."""
    span_days: float
    """Calendar days in the window."""
    daily_days: Floats | None
    """(nodes, days) by calendar day, newest first; None = even over the window."""

    def after(self, exposure: Floats) -> Floats:
        """(nodes, onsets): use since each possible onset."""
        return self._youngest(exposure, np.arange(exposure.size)[:, None], ONSETS_DAYS[None, :])

    def merging(self, exposure: Floats, named: Failures, ages_days: Floats, weight: Floats) -> Floats:
        """(nodes, ages): use younger than each age between the first and the last failure of an episode of the node.

        `weight`: per episode.
        """
        node, first = named.node[:, None], named.age_days[:, None]
        oldest = np.minimum(first, ages_days[None, :])
        lasted = np.zeros(first.size) if named.lasted_days is None else named.lasted_days
        newest = np.minimum(first - lasted[:, None], oldest)
        used = self._youngest(exposure, node, oldest) - self._youngest(exposure, node, newest)
        merging = np.zeros((exposure.size, ages_days.size))
        np.add.at(merging, named.node, used * weight[:, None])
        return merging

    def _youngest(self, exposure: Floats, node: Ints, age_days: Floats) -> Floats:
        """Use of `node` in the last `age_days` of the window."""
        if self.daily_days is None:
            return exposure[node] * np.clip(age_days / self.span_days, 0.0, 1.0)
        n_days = self.daily_days.shape[1]
        age = np.clip(age_days, 0.0, n_days)
        whole = np.minimum(age.astype(np.int64), n_days - 1)
        until = np.cumsum(self.daily_days, axis=1) - self.daily_days
        answer: Floats = until[node, whole] + (age - whole) * self.daily_days[node, whole]
        return answer


@dataclass(frozen=True, kw_only=True)
class NodeRows:
    """Facts of the nodes and their failures that are the same in every round.

    Nodes without failures share a few rows by exposure; every other node has a row of its own.
    """

    exposure: Floats
    episodes: Floats
    shared_row: Ints
    """Per node: its row in the following arrays, shared or its own."""
    own_row: Ints
    """Per node: its own row; -1 if it shares one."""
    example: Ints
    """(rows): the node of the row, or one of those that share it."""
    row_exposure: Floats
    """(rows): exposure."""
    after: Floats
    """(rows, onsets): exposure since each possible onset."""
    countable: Floats
    """Per node: exposure without the time between the first and the last failure of its episodes.

    Failures within it begin no episode, so it does not show that nothing failed: else a node that fails every day would
    count as one that fails every other day. Of an episode in a crowd only its share is left out: the others' cause explains
    its repetitions.
    """
    row_countable: Floats
    """(rows): the same."""
    countable_after: Floats
    """(rows, onsets): the same since each possible onset."""
    count: Floats
    """(rows): episodes."""
    count_after: Floats
    """(rows, onsets): episodes since each possible onset."""
    log_parts: Floats
    """(rows, onsets): log likelihood ratio from the parts that failed since."""
    onset_bin: Ints
    """Per episode: the first onset before it."""
    gang_onset_bin: Ints
    """Per pair of gang and node: the first onset before the gang's failure."""
    surplus: Floats
    beside: Floats

    @classmethod
    def of(cls, used: Exposure, named: Failures, gangs: Gangs, place: Ints | None) -> NodeRows:
        """`place`: shared place per node (rack, pod, switch), as a number."""
        exposure = np.maximum(used.days, 1e-9)
        nodes = exposure.size
        count = np.bincount(named.node, minlength=nodes).astype(np.float64)
        own = (count > 0) | (gangs.hint(nodes) >= HINT)
        example, at, row = _rows(exposure, own)
        bins = _bins(named.age_days)
        surplus, beside = episodes.crowding(named, used.span_days, place)
        merging = used.merging(exposure, named, np.append(ONSETS_DAYS, np.inf), 1.0 / surplus)
        countable = np.maximum(exposure - merging[:, -1], 0.0)
        after = used.after(exposure)
        return cls(
            exposure=exposure,
            episodes=count,
            shared_row=at,
            own_row=row,
            example=example,
            row_exposure=exposure[example],
            after=after[example],
            countable=countable,
            row_countable=countable[example],
            countable_after=np.maximum(after - merging[:, :-1], 0.0)[example],
            count=np.where(own[example], count[example], 0.0),
            count_after=_since(row[named.node], bins, np.ones(bins.size), example.size),
            log_parts=_log_parts(named, bins, row, example.size),
            onset_bin=bins,
            gang_onset_bin=_bins(gangs.age_days)[gangs.event],
            surplus=surplus,
            beside=beside,
        )


def _rows(exposure: Floats, own: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """One example node per row, each node's row, and its own row or -1."""
    listed = np.flatnonzero(own)
    without_failures = np.flatnonzero(~own)
    step = np.round(np.log2(exposure[without_failures]) * 8).astype(np.int64)
    _, first, shared = np.unique(step, return_index=True, return_inverse=True)
    row = np.full(exposure.size, -1, np.int64)
    row[listed] = np.arange(listed.size)
    at = row.copy()
    at[without_failures] = listed.size + shared.reshape(-1)
    return np.concatenate([listed, without_failures[first]]), at, row


@dataclass(frozen=True, kw_only=True)
class LemonRate:
    """Rates of ordinary nodes, per day in use."""

    levels: Floats
    """Named failures by the verdict's level, right or wrong."""
    hardware: float
    """Named hardware failures."""
    unnamed: float
    """Hardware failures without a named node, of gangs up to `gangs.LARGEST`."""
    mix: Floats
    """Shares of the levels among rightly named hardware failures."""
    beside: Floats
    """Per node: the rate with at most one episode of its own in it, as a share of the fleet's.

    A node that has many of a small fleet's failures would otherwise be compared with itself.
    """

    @classmethod
    def of(cls, facts: NodeRows, named: Failures, gangs: Gangs, ordinary: Floats) -> LemonRate:
        """`ordinary`: each node's probability of being ordinary."""
        level = episodes.level(named.weight)
        weight = ordinary[named.node]
        exposure = float((ordinary * facts.countable).sum()) + PRIOR_DAYS
        mix = episodes.hardware_mix(named)
        failures = weight.sum() + PRIOR_DAYS * USUAL_RATE_PER_DAY
        total = max(failures / exposure, MIN_RATE_PER_DAY)
        own = ordinary - np.minimum(ordinary, 1.0 / np.maximum(facts.episodes, 1.0))
        others = np.maximum(
            (failures - own * facts.episodes) / (exposure - own * facts.countable), MIN_RATE_PER_DAY
        )
        counts = np.bincount(level, weights=weight, minlength=mix.size) + mix
        right = float((weight * named.weight).sum() / weight.sum()) if weight.sum() > 0 else 1.0
        hardware = max(total * right, MIN_RATE_PER_DAY)
        frac = _unnamed_frac(gangs, named)
        return cls(
            levels=total * counts / counts.sum(),
            hardware=hardware,
            unnamed=hardware * frac / (1.0 - frac) * gangs.included_frac,
            mix=mix,
            beside=others / total,
        )


def _bins(age_days: Floats) -> Ints:
    bins: Ints = np.minimum(np.searchsorted(ONSETS_DAYS, age_days), ONSETS_DAYS.size - 1).astype(np.int64)
    return bins


def _since(row: Ints, bins: Ints, values: Floats, rows: int) -> Floats:
    """(rows, onsets): sums of `values` since each onset."""
    flat = np.bincount(row * ONSETS_DAYS.size + bins, weights=values, minlength=rows * ONSETS_DAYS.size)
    summed: Floats = flat.reshape(rows, ONSETS_DAYS.size).cumsum(axis=1)
    return summed


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
    part_share = np.where(of_pair > 0, share[:, None], 0.0)
    same = np.where(of_pair > 0, same, 0.0)
    by_node = np.zeros_like(total)
    np.add.at(by_node, pair[0], same - part_share)
    one = np.log(np.maximum(1.0 + by_node, 1e-12)) + total * np.log(1 - own)
    log_parts: Floats = np.logaddexp(np.log(episodes.HAS_OWN_PART) + one, np.log(1 - episodes.HAS_OWN_PART))
    return log_parts


def log_odds(
    facts: NodeRows,
    named: Failures,
    gangs: Gangs,
    rate: LemonRate,
    mean: Floats,
    share: float,
    noise: float,
) -> tuple[Floats, Floats, Floats]:
    """Per node: log likelihood ratio of lemon to ordinary; and if it is a lemon, its mean factor and days since onset."""
    level = episodes.level(named.weight)
    of_node, of_row = rate.beside[named.node], rate.beside[facts.example]
    ordinary = of_node * rate.levels[level] * facts.surplus + facts.beside
    per_extra = of_node * rate.hardware * rate.mix[level] / ordinary
    pairs = np.flatnonzero(facts.own_row[gangs.node] >= 0)
    at = facts.own_row[gangs.node[pairs]] * ONSETS_DAYS.size + facts.gang_onset_bin[pairs]
    named_at = facts.own_row[named.node] * ONSETS_DAYS.size + facts.onset_bin
    per_gang = rate.unnamed / (gangs.rate_beside(mean, noise)[pairs] + rate.unnamed)
    rows, usual = facts.after.shape[0], float(rate.levels.sum()) * of_row[:, None]
    rest = _log_ordinary(
        facts.count[:, None] - facts.count_after,
        usual * (facts.row_countable[:, None] - facts.countable_after),
    )
    rest += facts.log_parts + _ONSET_LOG_WEIGHTS[None, :] - usual * facts.countable_after
    bad = np.empty((_EXTRA.size, rows, ONSETS_DAYS.size))
    both, spots = np.concatenate([named_at, at]), rows * ONSETS_DAYS.size
    each = np.log1p(_EXTRA[:, None] * np.concatenate([per_extra, per_gang])[None, :])
    for column in range(_EXTRA.size):
        bad[column] = np.bincount(both, each[column], minlength=spots).reshape(rows, ONSETS_DAYS.size)
    np.cumsum(bad, axis=2, out=bad)
    expected = of_row[:, None] * (rate.hardware * facts.countable_after + rate.unnamed * facts.after)
    bad -= _EXTRA[:, None, None] * expected[None]
    log_p = bad + rest[None]
    top = log_p.max(axis=(0, 2))
    weight = np.exp(log_p - top[None, :, None])
    by_factor = weight.sum(axis=2)
    total = by_factor.sum(axis=0)
    healthy = _log_ordinary(facts.count[:, None], usual * facts.row_countable[:, None])[:, 0]
    mended = np.zeros(rows)
    for end in MENDED_AT:
        # Bad from an earlier onset until then: later failures are an ordinary node's.
        mended += np.exp(log_p[:, :, end + 1 :] - bad[:, :, end : end + 1] - top[None, :, None]).sum(
            axis=(0, 2)
        )
    log_mended = np.log(mended / len(MENDED_AT) / _EXTRA.size + 1e-300) + top
    ordinary_now = np.logaddexp(healthy, log_mended + np.log(MENDED * share / (1 - share)))
    odds = np.log(total / _EXTRA.size) + top - ordinary_now
    factor = (LEMON_FACTORS @ by_factor) / total
    since = (weight.sum(axis=0) @ ONSETS_DAYS) / total
    return odds[facts.shared_row], factor[facts.shared_row], since[facts.shared_row]


def _log_ordinary(count: Floats, expected: Floats) -> Floats:
    """log P(count | an ordinary node), without the factors that are left out for lemons, too."""
    log_p = (
        count[..., None] * np.log(_HEALTHY_FACTORS)
        - expected[..., None] * _HEALTHY_FACTORS
        + _HEALTHY_LOG_WEIGHTS
    )
    top = log_p.max(axis=-1)
    answer: Floats = top + np.log(np.exp(log_p - top[..., None]).sum(axis=-1))
    return answer


def noise_per_day(gangs: Gangs, by_lemons: float, facts: NodeRows, rate: LemonRate) -> float:
    """Unnamed failures per node-day that hardware does not explain."""
    left = (gangs.size.size - by_lemons) / max(float(facts.exposure.sum()), 1e-9)
    return max(left - rate.unnamed, 0.5 * rate.unnamed)


def _unnamed_frac(gangs: Gangs, named: Failures) -> float:
    """Share of hardware failures whose verdict names no node."""
    return float(np.clip((gangs.hardware + 1.0) / (gangs.hardware + named.weight.sum() + 3.0), 0.05, 0.8))
