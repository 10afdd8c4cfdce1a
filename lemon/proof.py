"""Caps the probability of a node without proof, so that it is not named."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probing_cluster.lemon.episodes import Failures

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_SIGNS = 3
MIN_EPISODES = 2
MIN_SPAN_DAYS = 4.0
"""An unrepaired fault may return for some days: two episodes closer than this are no proof."""
STRONG_SIGN = 2.0
"""Log likelihood ratio of further signs that counts as one failure."""
UNPROVEN = 0.49
"""Upper bound of a probability without proof, also after calibration."""


def cap_unproven(
    probability: Floats, auxiliary: Floats | None, named: Failures, repeats: Ints, shared: Floats
) -> Floats:
    """Probabilities, capped at UNPROVEN for nodes without proof: such a node is a suspect at most.

    No proof are two failures within four days, or any number within two. Two failures further apart need a third sign:
    the same part again, a full share of unnamed failures, or a trend.
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
