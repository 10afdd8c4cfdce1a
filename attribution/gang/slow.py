"""Slow ranks by late arrival: in a synchronous step the culprit waits least, its victims wait for it.

Robust statistics: a rank is slow in a component when its own time exceeds the gang's median by more
than max(5·MAD, 3 %) (threshold of the node check measured in the anchors: 1.2x found, no alarm at 2 % noise).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAD_FACTOR = 5.0
MIN_EXCESS_FRAC = 0.03
MIN_STEPS = 8
"""Fewer common steps say nothing."""

COMPONENTS = ("compute", "input", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Where one step of one rank went, seconds."""

    step: int
    total_s: float
    """From the end of the step before to the end of this one."""
    input_s: float
    waiting_s: float
    """In collectives called from Python."""
    checkpoint_s: float

    @property
    def own_s(self) -> Mapping[str, float]:
        """Time the rank spent on its own account, per component; waiting for others is not its own."""
        return {
            "compute": max(0.0, self.total_s - self.input_s - self.waiting_s - self.checkpoint_s),
            "input": self.input_s,
            "checkpoint": self.checkpoint_s,
        }


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """One rank that the others wait for."""

    rank: int
    component: str
    own_s: float
    median_s: float
    excess_frac: float
    """own / median - 1."""


def slow_ranks(gang: Mapping[int, Sequence[StepTimes]]) -> list[SlowRank]:
    """The slow ranks of a gang, worst first; empty when nobody stands out or too little is known."""
    common = set.intersection(*({s.step for s in steps} for steps in gang.values())) if gang else set()
    if len(gang) < 3 or len(common) < MIN_STEPS:
        return []
    step_s = statistics.median(s.total_s for steps in gang.values() for s in steps if s.step in common)
    found: list[SlowRank] = []
    for component in COMPONENTS:
        own = {
            rank: statistics.median(s.own_s[component] for s in steps if s.step in common)
            for rank, steps in gang.items()
        }
        found += _outliers(component, own, step_s)
    return sorted(found, key=lambda s: (-(s.own_s - s.median_s), s.rank))


def _outliers(component: str, own: Mapping[int, float], step_s: float) -> list[SlowRank]:
    median = statistics.median(own.values())
    mad = statistics.median(abs(v - median) for v in own.values())
    # Relative to the whole step: a component that is 1 % of the step cannot slow anybody by 3 %.
    limit = median + max(MAD_FACTOR * mad, MIN_EXCESS_FRAC * max(median, step_s))
    return [
        SlowRank(
            rank=rank,
            component=component,
            own_s=value,
            median_s=median,
            excess_frac=value / median - 1 if median > 0 else float("inf"),
        )
        for rank, value in own.items()
        if value > limit
    ]
