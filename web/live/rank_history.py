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
ROWS_S, ROWS_OF = 2.0, 4
"""How long, and of how many jobs, the ranks as read from the database are kept."""
MOST_RANKS = 1 << 16
MOST_JOBS = 64
LAYERS = {"own": "s", "waiting": "s", "still": "s", "behind": "steps"}
"""What a rank spent of a step by itself and waiting for others, how long ago its last step was, and how many steps it is
behind the furthest rank; each with its unit."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure of every rank at every look."""

    n_ranks: int
    n_looks: int
    most: float
    """What 255 stands for, in the layer's unit."""
    every_s: float
    cells: bytes
    """Rank by rank; 0 where nothing is known."""


@dataclass(frozen=True, kw_only=True)
class RankLook:
    """The ranks at one look: of as many as there are, whatever numbers they give themselves."""

    ranks: np.ndarray
    layers: dict[str, np.ndarray]
    """A figure of each rank in `ranks`, NaN where it is not known."""


@dataclass
class History:
    """One job's ranks."""

    looks: deque[RankLook] = field(default_factory=lambda: deque(maxlen=LOOKS))
    at_s: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, now_s: float, found: list[rank_rows.RankNow]) -> None:
        """Take the ranks as they are now."""
        by_rank = {r.rank: r for r in found if r.rank is not None and r.rank < MOST_RANKS}
        layers = {name: np.full(len(by_rank), np.nan, dtype=np.float32) for name in LAYERS}
        furthest = max((r.steps for r in by_rank.values()), default=0)
        for n, row in enumerate(by_rank.values()):
            layers["behind"][n] = furthest - row.steps
            if row.window is not None:
                layers["own"][n] = max(row.window.total_s - row.window.waiting_s, 0.0)
                layers["waiting"][n] = row.window.waiting_s
            if row.step_age_s is not None:
                layers["still"][n] = row.step_age_s + row.beat_age_s
        self.looks.append(RankLook(ranks=np.array(list(by_rank), dtype=np.int32), layers=layers))
        self.at_s = now_s

    def picture(self, layer: str) -> Picture:
        """All looks at one figure, oldest left."""
        with self.lock:
            columns = [(look.ranks, look.layers[layer]) for look in self.looks]
        n_ranks = max((int(ranks.max()) + 1 for ranks, _ in columns if len(ranks)), default=0)
        known = [values[np.isfinite(values)] for _, values in columns]
        most = max((float(values.max()) for values in known if len(values)), default=0.0)
        cells = np.zeros((n_ranks, len(columns)), dtype=np.uint8)
        for number, (ranks, values) in enumerate(columns):
            there = np.isfinite(values)
            share = np.clip(values[there] / most, 0, 1) if most > 0 else np.zeros(int(there.sum()))
            cells[ranks[there], number] = (1 + share * 254).astype(np.uint8)
        return Picture(
            n_ranks=n_ranks, n_looks=len(columns), most=most, every_s=EVERY_S, cells=cells.tobytes()
        )


Key = tuple[str, int, object]


def _key(gang: gang_board.BoardGang) -> Key:
    return (gang.cluster, gang.job_id, gang.since)


class Histories:
    """The rank histories of the jobs looked at lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, History] = OrderedDict()
        self._rows: OrderedDict[Key, tuple[float, list[rank_rows.RankNow]]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, service: context.Context, gang: gang_board.BoardGang) -> list[rank_rows.RankNow]:
        """The ranks as of a moment ago: a page and its picture ask within a second, and reading 16,000 takes half of one."""
        key, now_s = _key(gang), service.clock.monotonic_s()
        with self._lock:
            at_s, found = self._rows.get(key, (float("-inf"), []))
        if now_s - at_s < ROWS_S:
            return found
        found = gang_board.ranks_now(service.store, gang)
        with self._lock:
            self._rows[key] = (now_s, found)
            self._rows.move_to_end(key)
            while len(self._rows) > ROWS_OF:
                self._rows.popitem(last=False)
        return found

    def of(self, service: context.Context, gang: gang_board.BoardGang) -> History:
        """The history of one attempt, with a new look in it where the last is old enough."""
        key = _key(gang)
        with self._lock:
            history = self._known.pop(key, None) or History()
            self._known[key] = history
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)
        with history.lock:
            now_s = service.clock.monotonic_s()
            if not gang.is_over and now_s - history.at_s >= EVERY_S * 0.9:
                history.look(now_s, self.rows(service, gang))
        return history


HISTORIES = Histories()
