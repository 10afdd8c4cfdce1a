"""What a figure is held against: the node's own past, else the same model's elsewhere; and when a node began to drift."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import NormalDist, median

FEWEST = 5
"""Figures that make a baseline."""
FLOOR = 0.10
"""A single test is called slow from here on: one figure by itself is noisier than a fleet's."""
MADS = 5.0
TAILS = 4.0
LEAST = 0.015
"""Least step that is named: one of 2.5 % is estimated lower half of the time."""
SURE = 5.0
"""Standard deviations: one alarm in some 100,000 series in which nothing changed, whatever their noise."""
_FEWEST_SIDE = 4


@dataclass(frozen=True, kw_only=True)
class BaselineComparison:
    """One figure against its baseline."""

    slow: bool
    baseline: float | None
    """Median of what it was held against; None when there is too little."""
    threshold: float | None
    against: str
    """node, model, or empty."""


def hold(
    measured: float, own: Sequence[float], model: Sequence[float], *, lower_is_better: bool
) -> BaselineComparison:
    """Whether a figure is worse than the node's own past or its model's elsewhere; the worse of both counts."""
    found = [
        _against(measured, values, word, lower_is_better)
        for values, word in ((own, "node"), (model, "model"))
        if len(values) >= FEWEST
    ]
    if not found:
        return BaselineComparison(slow=False, baseline=None, threshold=None, against="")
    return next((one for one in found if one.slow), found[0])


def _against(
    measured: float, values: Sequence[float], word: str, lower_is_better: bool
) -> BaselineComparison:
    middle = median(values)
    # The quartile on the bad side: a past with a heavy tail has a wide limit.
    bad_side = sorted(v - middle if lower_is_better else middle - v for v in values)
    tail = max(0.0, bad_side[3 * (len(bad_side) - 1) // 4])
    margin = max(MADS * median(abs(v - middle) for v in values), TAILS * tail, FLOOR * middle)
    threshold = middle + margin if lower_is_better else middle - margin
    slow = measured > threshold if lower_is_better else measured < threshold
    return BaselineComparison(slow=slow, baseline=middle, threshold=threshold, against=word)


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A lasting change of one figure of one node."""

    at: datetime
    """The first figure of the new level."""
    before: float
    after: float
    change_frac: float
    """(after - before) / before; what is worse has the sign of the figure's worse direction."""
    n_before: int
    n_after: int


def drift(series: Sequence[tuple[datetime, float]]) -> Drift | None:
    """The change point of a series in order of time, when the level moved for good; None when it did not.

    Judged on ranks, since single figures are held up by neighbours. A short series, whose ranks prove little, is judged on its
    figures where those before and after do not overlap. docs/diagnose.md says which step is found after how many figures.
    """
    values = [value for _, value in series]
    for scores, overlap in ((_normal_scores(values), True), (values, False)):
        cut, sure = _split(scores)
        if sure < SURE or not (overlap or _apart(values[:cut], values[cut:])):
            continue
        before, after = median(values[:cut]), median(values[cut:])
        change = (after - before) / before if before > 0 else 0.0
        if LEAST <= abs(change) < math.inf:
            return Drift(
                at=series[cut][0],
                before=before,
                after=after,
                change_frac=change,
                n_before=cut,
                n_after=len(values) - cut,
            )
    return None


def _split(values: Sequence[float]) -> tuple[int, float]:
    """The place at which least squares cut a series in two, and how sure that is, in standard deviations of the normal distribution."""
    n = len(values)
    middle = sum(values) / max(n, 1)
    total = sum((v - middle) * (v - middle) for v in values)
    best, cut, ahead = 0.0, 0, 0.0
    for i, value in enumerate(values, 1):
        ahead += value - middle
        between = ahead * ahead * n / (i * (n - i)) if _FEWEST_SIDE <= i <= n - _FEWEST_SIDE else 0.0
        if between > best:
            best, cut = between, i
    if not cut or not math.isfinite(total):
        return 0, 0.0
    free = n - 2
    squared_t = best * free / max(total - best, 1e-12 * total)
    # Wallace's approximation of the normal deviate that is as improbable as this Student's t.
    return cut, (8 * free + 1) / (8 * free + 3) * math.sqrt(free * math.log1p(squared_t / free))


def _normal_scores(values: Sequence[float]) -> list[float]:
    """Each figure's place among all as a normal deviate; equal figures share one."""
    ordered = sorted(values)
    deviate = NormalDist().inv_cdf
    places = [(bisect.bisect_left(ordered, v) + bisect.bisect_right(ordered, v) + 1) / 2 for v in values]
    return [deviate((place - 0.375) / (len(values) + 0.25)) for place in places]


def _apart(before: Sequence[float], after: Sequence[float]) -> bool:
    return max(before) < min(after) or max(after) < min(before)
