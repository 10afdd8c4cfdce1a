"""What a figure is held against: the node's own past, else the same model's elsewhere; and when a node began to drift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median

FEWEST = 5
"""Figures that make a baseline."""
FLOOR = 0.10
"""A single test is called slow from here on: one figure by itself is noisier than a fleet's."""
MADS = 5.0
DRIFT = 0.025
_FEWEST_SIDE = 4
_CERTAIN_T = 6.0


@dataclass(frozen=True, kw_only=True)
class Held:
    """One figure against its baseline."""

    slow: bool
    baseline: float | None
    """Median of what it was held against; None when there is too little."""
    threshold: float | None
    against: str
    """node, model, or empty."""


def hold(measured: float, own: Sequence[float], model: Sequence[float], *, lower_is_better: bool) -> Held:
    """Whether a figure is worse than the node's own past or its model's elsewhere; the worse of both counts."""
    found = [
        _against(measured, values, word, lower_is_better)
        for values, word in ((own, "node"), (model, "model"))
        if len(values) >= FEWEST
    ]
    if not found:
        return Held(slow=False, baseline=None, threshold=None, against="")
    return next((one for one in found if one.slow), found[0])


def _against(measured: float, values: Sequence[float], word: str, lower_is_better: bool) -> Held:
    middle = median(values)
    margin = max(MADS * median(abs(v - middle) for v in values), FLOOR * middle)
    threshold = middle + margin if lower_is_better else middle - margin
    slow = measured > threshold if lower_is_better else measured < threshold
    return Held(slow=slow, baseline=middle, threshold=threshold, against=word)


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
    """The change point of a series in order of time, when the level moved by 2.5 % or more; None when it did not.

    The split of least squares; it counts when the step is six standard errors or more, so that noise alone makes none.
    """
    values = [value for _, value in series]
    n = len(values)
    best: tuple[float, int] | None = None
    for cut in range(_FEWEST_SIDE, n - _FEWEST_SIDE + 1):
        spread = _squares(values[:cut]) + _squares(values[cut:])
        if best is None or spread < best[0]:
            best = (spread, cut)
    if best is None:
        return None
    spread, cut = best
    before, after = fmean(values[:cut]), fmean(values[cut:])
    if before <= 0 or abs(after - before) < DRIFT * before:
        return None
    error = math.sqrt(spread / max(n - 2, 1) * (1 / cut + 1 / (n - cut)))
    if abs(after - before) < _CERTAIN_T * error:
        return None
    return Drift(
        at=series[cut][0],
        before=before,
        after=after,
        change_frac=(after - before) / before,
        n_before=cut,
        n_after=n - cut,
    )


def _squares(values: Sequence[float]) -> float:
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values)
