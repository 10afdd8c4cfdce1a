"""Signs short of a failure: correctable errors, link flaps, recurrence after repair, compared with the fleet.

Each gives a log likelihood ratio, tempered and capped: overlapping signs of one fault must not add up
to proof, and a node that only shows signs is a suspect, never a lemon.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

TAIL = 1e-3
"""A count this unlikely on an ordinary node is a sign."""
SIGN = 2.5
"""Log likelihood ratio of a sign: about half of lemons show one, about 4 % of healthy nodes do."""
NO_SIGN = -0.5
MAX_TOTAL = 3.5
DISPERSION = 2.0
"""Variance of ordinary nodes' counts, relative to Poisson: minor events come in bursts."""


def log_ratio(counts: Mapping[str, Floats], exposure_days: Floats) -> Floats:
    """The evidence of all minor signs per node; `counts` maps sign to events in the window."""
    total = np.zeros_like(exposure_days)
    shown = np.zeros(exposure_days.shape, bool)
    for values in counts.values():
        shown |= _unusual(values, exposure_days)
    if counts:
        total = np.where(shown, SIGN, NO_SIGN)
    capped: Floats = np.clip(total, NO_SIGN, MAX_TOTAL)
    return capped


def _unusual(values: Floats, exposure_days: Floats) -> npt.NDArray[np.bool_]:
    """Counts far above what this fleet's nodes of the same exposure have (negative binomial tail)."""
    exposure = np.maximum(exposure_days, 1e-9)
    if values.size == 0 or values.sum() == 0:
        return np.zeros(values.shape, bool)
    limit = np.quantile(values / exposure, 0.95)
    ordinary = values / exposure <= limit
    rate = max(values[ordinary].sum() / exposure[ordinary].sum(), 1e-3)
    mean = rate * exposure
    size = mean / (DISPERSION - 1.0)
    tail = stats.nbinom.sf(values - 1, size, size / (size + mean))
    unusual: npt.NDArray[np.bool_] = (tail < TAIL) & (values >= 3)
    return unusual
