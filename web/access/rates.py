"""How often one may ask: a bucket each, which fills again with time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

BURST_S = 5.0
"""So many seconds' worth may come at once: a page asks for several things."""
MOST_BUCKETS = 10_000


class Rates:
    """Token buckets by name, of users and of addresses."""

    def __init__(self, per_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s = max(per_s, 0.001)
        self._now_s = now_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, name: str, cost: float = 1.0) -> float:
        """0 where `name` may ask now, and that is counted; else the seconds until it may."""
        most = max(self._per_s * BURST_S, 1.0)
        now = self._now_s()
        with self._lock:
            level, at = self._buckets.pop(name, (most, now))
            level = min(most, level + (now - at) * self._per_s)
            allowed = level >= min(cost, most)
            self._buckets[name] = (level - cost if allowed else level, now)
            while len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (min(cost, most) - level) / self._per_s
