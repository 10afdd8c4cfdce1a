"""The paper's rule as the baseline: thresholds on seven signals, chosen by hand from the site's own distribution.

No numbers are published (arXiv 2410.21680, Fig. 11 is normalised): thresholds here are percentiles of
the site's nodes. Exclusions by users do not correlate with failures, so they never count alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probing_cluster.core import vocabulary

SIGNALS = vocabulary.LEMON_SIGNALS
FAILURE_SIGNALS = tuple(name for name in SIGNALS if "node_fail" in name)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LemonRule:
    """A node is named when `votes` signals reach their threshold, one of them a failure signal."""

    percentile: float = 99.0
    floor: float = 1.0
    """A threshold below this is raised to it: on a quiet fleet every percentile is 0."""
    votes: int = 2


def thresholds(signals: Mapping[str, Floats], rule: LemonRule) -> dict[str, float]:
    """Each signal's threshold on this fleet, in the signal's own unit."""
    found = {}
    for name in SIGNALS:
        values = signals[name]
        limit = float(np.nanpercentile(values, rule.percentile)) if values.size else 0.0
        found[name] = limit if name == "single_node_node_failure_rate" else max(limit, rule.floor)
    return found


def named(
    signals: Mapping[str, Floats], limits: Mapping[str, float], rule: LemonRule
) -> npt.NDArray[np.bool_]:
    """The nodes that the rule names."""
    over = {n: np.nan_to_num(signals[n]) >= limits[n] for n in SIGNALS}
    over["single_node_node_failure_rate"] &= np.nan_to_num(signals["single_node_node_fails"]) >= rule.floor
    votes = sum(over[n].astype(int) for n in SIGNALS)
    failing = np.logical_or.reduce([over[n] for n in FAILURE_SIGNALS])
    answer: npt.NDArray[np.bool_] = (votes >= rule.votes) & failing
    return answer
