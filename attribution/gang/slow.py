"""Slow ranks by late arrival: in a synchronous step the culprit waits least, its victims wait for it.

Robust statistics: a rank is slow in a component when its own time exceeds the gang's median by more
than max(5·MAD, 3 %) (threshold of the node check measured in the anchors: 1.2x found, no alarm at 2 % noise),
and the others wait for it: a rank that is merely different, in a gang that waits for nobody, is not slow.
Drift is the same question asked over time: is the whole gang slower than at its own beginning?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

MAD_FACTOR = 5.0
MIN_EXCESS_FRAC = 0.03
DRIFT_FRAC = 0.10
"""A gang that changes by less over a run does other work, not slower work."""
MIN_STEPS = 8
"""Fewer common steps say nothing."""
MIN_RANKS = 3
"""Ranks a gang must have: of two, nobody can say which one is slow."""
LATE_FRAC = 0.5
"""The others must wait for at least this share of a rank's excess: else nobody is held up by it."""

COMPONENTS = ("compute", "host", "input", "checkpoint")
"""compute: forward, backward and Python, without waiting; host: the same outside of backward, where a gang
whose gradients are reduced inside backward (DDP) shows its late arrivals; input: waiting for the data loader."""
_MIN_S, _MOST_STEPS = 1e-9, 2**53
_MAX_S = 1e6
"""No step takes twelve days: larger numbers come from a forged page."""


@dataclass(frozen=True, kw_only=True)
class PaceWindow:
    """What the same few steps took one rank: medians per component, seconds (made by the agent's step_windows)."""

    index: int
    """Which steps: windows of one size, counted from the first step, so equal numbers mean equal steps."""
    steps: int
    total_s: float
    """From the end of a step to the end of the next."""
    compute_s: float
    host_s: float
    input_s: float
    checkpoint_s: float
    waiting_s: float
    """In collectives called from Python."""
    backward_s: float
    """Inside the backward pass, the gradient collectives that the reducer makes there included."""

    @classmethod
    def from_row(cls, row: object) -> Self | None:
        """The window in a rank's row of a heartbeat; None when it is none (a user may write any page)."""
        if not isinstance(row, Mapping):
            return None
        try:
            values = {name: float(row[name]) for name in _SECONDS}
            index, steps = int(row["index"]), int(row["steps"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        sane = all(math.isfinite(v) and 0 <= v < _MAX_S for v in values.values())
        counts = 0 <= index <= _MOST_STEPS and MIN_STEPS <= steps <= _MOST_STEPS
        if not sane or values["total_s"] < _MIN_S or not counts:
            return None
        return cls(index=index, steps=steps, **values)

    def own_s(self, component: str) -> float:
        """Time the rank spent on its own account in a component; waiting for others is not its own."""
        value: float = getattr(self, f"{component}_s")
        return value


_SECONDS = ("total_s", "compute_s", "host_s", "input_s", "checkpoint_s", "waiting_s", "backward_s")


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """One rank that the others wait for."""

    rank: int
    component: str
    own_s: float
    median_s: float
    limit_s: float
    """What it would have had to stay under."""
    waited_s: float
    """How much longer than it the median rank waits in each step."""
    step_s: float

    @property
    def excess_frac(self) -> float:
        """own / median - 1; infinite where the others spend nothing on this component."""
        return self.own_s / self.median_s - 1 if self.median_s > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What the steps of one window took the gang as a whole, seconds."""

    index: int
    step_s: float
    compute_s: float
    input_s: float
    network_s: float
    """The shortest wait of any rank: the last to arrive waits for nobody, so this is the collectives themselves."""


@dataclass(frozen=True, kw_only=True)
class PaceDrift:
    """A component of the whole gang that has become slower over the run."""

    component: str
    now_s: float
    first_s: float
    limit_s: float


def slow_in(gang: Mapping[int, PaceWindow]) -> list[SlowRank]:
    """The slow ranks of a gang in one window, worst first, each in one component.

    Empty when nobody stands out or too little is known. A gang of which half stands out has two kinds of
    work, not slow ranks; the median then lies between them and names nobody for certain.
    """
    if len(gang) < MIN_RANKS:
        return []
    step_s = statistics.median(w.total_s for w in gang.values())
    worst: dict[int, SlowRank] = {}
    for component in COMPONENTS:
        for found in _outliers(component, gang, step_s):
            known = worst.get(found.rank)
            # Compute includes host: where both stand out, the visible collectives have decided already.
            if known is None or (component != "host" and _excess_s(found) > _excess_s(known)):
                worst[found.rank] = found
    return sorted(worst.values(), key=lambda s: (-_excess_s(s), s.rank))


def _excess_s(found: SlowRank) -> float:
    return found.own_s - found.median_s


def _outliers(component: str, gang: Mapping[int, PaceWindow], step_s: float) -> list[SlowRank]:
    own = {rank: w.own_s(component) for rank, w in gang.items()}
    median = statistics.median(own.values())
    # Relative to the whole step: a component that is 1 % of the step cannot slow anybody by 3 %.
    limit = median + _margin(list(own.values()), median, step_s, MIN_EXCESS_FRAC)
    late = _lateness(gang)
    return [
        SlowRank(
            rank=rank,
            component=component,
            own_s=value,
            median_s=median,
            limit_s=limit,
            waited_s=late[rank],
            step_s=step_s,
        )
        for rank, value in own.items()
        if value > limit and late[rank] >= LATE_FRAC * (value - median)
    ]


def _margin(values: Sequence[float], median: float, step_s: float, least_frac: float) -> float:
    mad = statistics.median(abs(v - median) for v in values)
    return max(MAD_FACTOR * mad, least_frac * max(median, step_s))


def _lateness(gang: Mapping[int, PaceWindow]) -> dict[int, float]:
    """How much less than the median rank each one waits: in visible collectives, or in backward where they hide."""
    visible = statistics.median(w.waiting_s for w in gang.values())
    hidden = statistics.median(w.waiting_s + w.backward_s for w in gang.values())
    return {
        rank: max(visible - w.waiting_s, hidden - w.waiting_s - w.backward_s, 0.0) for rank, w in gang.items()
    }


def pace_of(index: int, gang: Mapping[int, PaceWindow]) -> Pace:
    """The gang's pace in one window; at least one rank is needed."""
    return Pace(
        index=index,
        step_s=statistics.median(w.total_s for w in gang.values()),
        compute_s=statistics.median(w.compute_s for w in gang.values()),
        input_s=statistics.median(w.input_s for w in gang.values()),
        network_s=min(w.waiting_s for w in gang.values()),
    )


def drift(first: Sequence[Pace], last: Sequence[Pace]) -> list[PaceDrift]:
    """What has become slower between the first windows of a run and the last ones, worst first.

    Each side is the median of its windows; the spread of the first ones and DRIFT_FRAC of a step are the margin.
    """
    if not first or not last:
        return []
    step_s = statistics.median(p.step_s for p in first)
    found = []
    for component in ("compute", "input", "network"):
        then = [getattr(p, f"{component}_s") for p in first]
        began = statistics.median(then)
        now = statistics.median(getattr(p, f"{component}_s") for p in last)
        limit = began + max(_margin(then, began, 0.0, 0.0), DRIFT_FRAC * step_s)
        if now > limit:
            found.append(PaceDrift(component=component, now_s=now, first_s=began, limit_s=limit))
    return sorted(found, key=lambda d: d.first_s - d.now_s)
