"""The ranks of running jobs over time, kept in memory from the first look on, as long as somebody looks."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import gang_board, rank_rows

EVERY_S = 5.0
"""Between two looks: heartbeats of nodes with jobs come as often."""
LOOKS = 120
"""Ten minutes."""
MOST_RANKS = 1 << 16
MOST_JOBS = 64
LAYERS = ("own", "waiting", "still")
"""Seconds of a step that a rank spent by itself, waiting for others, and since its last step."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure of every rank at every look."""

    n_ranks: int
    n_looks: int
    most_s: float
    """What 255 stands for, seconds."""
    every_s: float
    cells: bytes
    """Rank by rank; 0 where nothing is known."""


@dataclass
class History:
    """One job's ranks."""

    looks: deque[dict[str, np.ndarray]] = field(default_factory=lambda: deque(maxlen=LOOKS))
    at_s: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, now_s: float, found: list[rank_rows.RankNow]) -> None:
        """Take the ranks as they are now."""
        known = [r for r in found if r.rank is not None and r.rank < MOST_RANKS]
        n_ranks = max((r.rank for r in known if r.rank is not None), default=-1) + 1
        layers = {name: np.full(n_ranks, np.nan, dtype=np.float32) for name in LAYERS}
        for row in known:
            assert row.rank is not None
            if row.window is not None:
                layers["own"][row.rank] = max(row.window.total_s - row.window.waiting_s, 0.0)
                layers["waiting"][row.rank] = row.window.waiting_s
            if row.step_age_s is not None:
                layers["still"][row.rank] = row.step_age_s + row.heard_s
        self.looks.append(layers)
        self.at_s = now_s

    def picture(self, layer: str) -> Picture:
        """All looks at one figure, oldest left."""
        with self.lock:
            columns = [look[layer] for look in self.looks]
        n_ranks = max((len(c) for c in columns), default=0)
        cells = np.full((n_ranks, len(columns)), np.nan, dtype=np.float32)
        for number, column in enumerate(columns):
            cells[: len(column), number] = column
        known = np.isfinite(cells)
        most = float(cells[known].max()) if known.any() else 0.0
        scaled = np.zeros(cells.shape, dtype=np.uint8)
        if most > 0:
            scaled[known] = (1 + np.clip(cells[known] / most, 0, 1) * 254).astype(np.uint8)
        else:
            scaled[known] = 1
        return Picture(
            n_ranks=n_ranks, n_looks=len(columns), most_s=most, every_s=EVERY_S, cells=scaled.tobytes()
        )


class Histories:
    """Those of the jobs looked at lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int, object], History] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, service: context.Context, gang: gang_board.Gang) -> History:
        """The history of one attempt, with a new look in it where the last is old enough."""
        key = (gang.cluster, gang.job_id, gang.since)
        with self._lock:
            history = self._known.pop(key, None) or History()
            self._known[key] = history
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)
        ended = gang.attempt is not None and gang.attempt.end_at is not None
        with history.lock:
            now_s = service.clock.monotonic_s()
            if not ended and now_s - history.at_s >= EVERY_S * 0.9:
                beats = service.store.heartbeats(job_id=gang.job_id, with_ranks=True)
                ages_s = service.store.heartbeat_ages_s() if beats else {}
                history.look(now_s, rank_rows.of_heartbeats(beats, ages_s, gang.job_id))
        return history


HISTORIES = Histories()
