"""What the service remembers of the pace of one running gang: window by window, bounded, without a single step.

A rank is called slow when it is so in CONFIRM windows running; the gang is held against its own first windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from probing_cluster.attribution.gang import slow
from probing_cluster.control_plane.gangs import rank_rows

CONFIRM = 2
"""Windows running in which a rank must be slow: one garbage collection is no slow rank."""
KEEP = 4
"""Windows of a rank remembered: nodes tell at different moments, and the same window must come from all."""
COVER_FRAC = 0.9
"""Share of its ranks that must have reported before a gang is judged."""
SPREAD_S = 15.0
"""Where a window is shorter than the time between heartbeats, windows this near to each other count as the same."""
SETTLED = 1
"""The first window compiles, warms up and fills caches: no beginning to hold anything against."""
FIRST = 8
LAST = 4
"""Windows at the beginning and now whose medians are compared for drift."""


@dataclass(kw_only=True)
class GangPace:
    """One gang."""

    nodes: frozenset[str] = frozenset()
    """The job's nodes by accounting; empty while accounting does not have it."""
    windows: dict[int, dict[int, slow.PaceWindow]] = field(default_factory=dict)
    """Rank to its last windows by index."""
    judged: int = -1
    streak: dict[tuple[int, str], int] = field(default_factory=dict)
    first: list[slow.Pace] = field(default_factory=list)
    last: deque[slow.Pace] = field(default_factory=lambda: deque(maxlen=LAST))
    slow_now: list[slow.SlowRank] = field(default_factory=list)
    """Confirmed in the latest window."""
    reported: set[str] = field(default_factory=set)

    def take(self, ranks: Iterable[rank_rows.RankNow]) -> bool:
        """The ranks as they are now; True when another window was judged."""
        here = {r.rank: r.window for r in ranks if r.alive and r.rank is not None and r.window is not None}
        newest = max((w.index for w in here.values()), default=-1)
        if newest < self.judged:
            self._begin_anew()
        self.windows = {rank: self._remembered(rank, window) for rank, window in here.items()}
        return self._judge(newest)

    def drifts(self) -> list[slow.PaceDrift]:
        """What is slower now than at the beginning; nothing before both are known."""
        return slow.drift(self.first, self.last) if len(self.last) == LAST and self.settled else []

    @property
    def settled(self) -> bool:
        """Whether the gang's beginning is known."""
        return len(self.first) == FIRST

    def _begin_anew(self) -> None:
        """The steps are counted from one again: this is another attempt."""
        self.windows, self.streak, self.first, self.slow_now, self.reported = {}, {}, [], [], set()
        self.last.clear()
        self.judged = -1

    def _remembered(self, rank: int, window: slow.PaceWindow) -> dict[int, slow.PaceWindow]:
        known = {**self.windows.get(rank, {}), window.index: window}
        return {index: known[index] for index in sorted(known)[-KEEP:]}

    def _judge(self, newest: int) -> bool:
        for index in range(newest, max(self.judged, newest - KEEP), -1):
            gang = {rank: w for rank, known in self.windows.items() if (w := _at(known, index)) is not None}
            if len(gang) < max(slow.MIN_RANKS, COVER_FRAC * len(self.windows)):
                continue
            self._judged(index, slow.slow_in(gang))
            self._paced(slow.pace_of(index, gang))
            return True
        return False

    def _judged(self, index: int, found: list[slow.SlowRank]) -> None:
        self.judged = index
        self.streak = {(s.rank, s.component): self.streak.get((s.rank, s.component), 0) + 1 for s in found}
        self.slow_now = [s for s in found if self.streak[s.rank, s.component] >= CONFIRM]

    def _paced(self, pace: slow.Pace) -> None:
        if pace.index < SETTLED:
            return
        if not self.settled:
            self.first.append(pace)
        else:
            self.last.append(pace)


def _at(known: dict[int, slow.PaceWindow], index: int) -> slow.PaceWindow | None:
    """The window of that index, or the nearest that is as good as the same moment."""
    nearest = min(known.values(), key=lambda w: (abs(w.index - index), w.index), default=None)
    if nearest is None:
        return None
    spread = int(SPREAD_S / (nearest.total_s * nearest.steps))
    return nearest if abs(nearest.index - index) <= spread else None
