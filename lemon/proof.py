"""Decides when a probability may name a node, and caps it where proof is missing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probing_cluster.lemon.episodes import Failures

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_SIGNS = 3
MIN_EPISODES = 2
MIN_SPAN_DAYS = 4.0
"""A fault that nobody has mended yet can come back for some days: two episodes closer than this are not proof."""
STRONG_SIGN = 2.0
"""A log likelihood ratio of this much from further signs stands for one failure."""
UNPROVEN = 0.49


def cap_unproven(
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
