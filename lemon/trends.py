"""Signs short of a failure (corrected errors, link flaps, failed tests), compared with the fleet.

Together they give one capped log likelihood ratio: several signs of one fault must not add up to proof, and a node with
nothing but signs is a suspect, never a lemon.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

TAIL = 1e-3
"""A count this unlikely on an ordinary node is a sign."""
SIGN = 2.5
"""Largest log likelihood ratio of the signs."""
SHOWN_BY_LEMONS = 0.5
"""Assumed share of lemons that show a sign; the share of ordinary nodes is counted on this fleet."""
DISPERSION = 2.0
"""Variance of ordinary nodes' counts relative to Poisson: minor events come in bursts."""


def log_ratio(counts: Mapping[str, Floats], exposure_days: Floats) -> Floats:
    """Log likelihood ratio of all minor signs per node; `counts`: sign to its events in the window, by node."""
    shown = np.zeros(exposure_days.shape, bool)
    for values in counts.values():
        shown |= _unusual(values, exposure_days)
    if not shown.any():
        return np.zeros_like(exposure_days)
    # Common signs say little; if half of the fleet's nodes show one, nothing.
    among_all = float(np.clip(shown.mean(), 0.01, SHOWN_BY_LEMONS))
    sign = min(SIGN, np.log(SHOWN_BY_LEMONS / among_all))
    ratio: Floats = np.where(shown, sign, np.log((1 - SHOWN_BY_LEMONS) / (1 - among_all)))
    return ratio


def _unusual(values: Floats, exposure_days: Floats) -> npt.NDArray[np.bool_]:
    """Flags counts far above those of this fleet's nodes with the same exposure (negative binomial tail)."""
    exposure = np.maximum(exposure_days, 1e-9)
    if values.size == 0 or values.sum() == 0:
        return np.zeros(values.shape, bool)
    limit = np.quantile(values / exposure, 0.95)
    ordinary = values / exposure <= limit
    rate = max(values[ordinary].sum() / exposure[ordinary].sum(), 1e-3)
    mean = rate * exposure
    size = mean / (DISPERSION - 1.0)
    tail = special.betainc(values, size, mean / (size + mean))
    unusual: npt.NDArray[np.bool_] = (tail < TAIL) & (values >= 3)
    return unusual
