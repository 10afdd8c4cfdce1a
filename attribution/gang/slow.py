"""Slow ranks by late arrival: in a synchronous step the slow rank waits least, and the others wait for it.

A rank is slow in a component if its own time exceeds the gang's median by more than max(5·MAD, 3 %) (the node check's
measured threshold: 1.2x found, no alarm at 2 % noise) and the others wait for it. In a gang that waits for no rank, a
different rank is not slow. Drift compares the whole gang with its own beginning.
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
"""Least share of a step by which a drifting gang slows down; less may be other work."""
MIN_STEPS = 8
"""Least common steps of a window."""
MIN_RANKS = 3
"""Least ranks of a gang: of two, neither can be called slow."""
LATE_FRAC = 0.5
"""Least share of a rank's excess for which the others must wait; otherwise it delays none of them."""

COMPONENTS = ("compute", "host", "input", "checkpoint")
"""compute: forward, backward and Python, without waiting; host: the same without backward, which shows late arrivals
in a gang whose gradients are reduced inside backward (DDP); input: waiting for the data loader."""
_MIN_S, _MOST_STEPS = 1e-9, 2**53
_MAX_S = 1e6
"""Longest credible time: a larger number comes from a forged page."""


@dataclass(frozen=True, kw_only=True)
class PaceWindow:
    """One rank's times in the same few steps: medians per component, seconds (from the agent's step_windows)."""

    index: int
    """Number of the window, counted from the first step: equal numbers mean equal steps."""
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
    """Inside the backward pass, including the reducer's gradient collectives."""

    @classmethod
    def from_row(cls, row: object) -> Self | None:
        """The window in a rank's row of a heartbeat; None if it is invalid (a user may write any page)."""
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
        """Seconds of the rank's own work in a component, without waiting for others."""
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
    """The time from which on it counts as slow."""
    waited_s: float
    """How much longer the median rank waits in each step."""
    step_s: float

    @property
    def excess_frac(self) -> float:
        """own / median - 1; infinite if the median is 0."""
        return self.own_s / self.median_s - 1 if self.median_s > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The whole gang's times in one window, seconds."""

    index: int
    step_s: float
    compute_s: float
    input_s: float
    network_s: float
    """The shortest wait of any rank: the last rank to arrive waits for none, so this is the collectives' own time."""


@dataclass(frozen=True, kw_only=True)
class PaceDrift:
    """A component in which the whole gang has slowed down during the run."""

    component: str
    now_s: float
    first_s: float
    limit_s: float


def slow_in(gang: Mapping[int, PaceWindow]) -> list[SlowRank]:
    """The slow ranks of a gang in one window, worst first, each in one component.

    Empty if no rank stands out or too little is known. A gang with half of its ranks standing out does two kinds of work;
    the median then lies between them.
    """
    if len(gang) < MIN_RANKS:
        return []
    step_s = statistics.median(w.total_s for w in gang.values())
    worst: dict[int, SlowRank] = {}
    for component in COMPONENTS:
        for found in _outliers(component, gang, step_s):
            known = worst.get(found.rank)
            # Compute includes host: if both stand out, the visible collectives have decided already.
            if known is None or (component != "host" and _excess_s(found) > _excess_s(known)):
                worst[found.rank] = found
    return sorted(worst.values(), key=lambda s: (-_excess_s(s), s.rank))


def _excess_s(found: SlowRank) -> float:
    return found.own_s - found.median_s


def _outliers(component: str, gang: Mapping[int, PaceWindow], step_s: float) -> list[SlowRank]:
    own = {rank: w.own_s(component) for rank, w in gang.items()}
    median = statistics.median(own.values())
    # Relative to the whole step: a component that is 1 % of the step cannot slow it by 3 %.
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
    """How much less than the median each rank waits: in visible collectives, or in backward, which hides them."""
    visible = statistics.median(w.waiting_s for w in gang.values())
    hidden = statistics.median(w.waiting_s + w.backward_s for w in gang.values())
    return {
        rank: max(visible - w.waiting_s, hidden - w.waiting_s - w.backward_s, 0.0) for rank, w in gang.items()
    }


def pace_of(index: int, gang: Mapping[int, PaceWindow]) -> Pace:
    """The gang's pace in one window; needs at least one rank."""
    return Pace(
        index=index,
        step_s=statistics.median(w.total_s for w in gang.values()),
        compute_s=statistics.median(w.compute_s for w in gang.values()),
        input_s=statistics.median(w.input_s for w in gang.values()),
        network_s=min(w.waiting_s for w in gang.values()),
    )


def drift(first: Sequence[Pace], last: Sequence[Pace]) -> list[PaceDrift]:
    """Components that are slower in a run's last windows than in its first ones, worst first.

    Each side is the median of its windows; the margin is the spread of the first ones, at least DRIFT_FRAC of a step.
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
