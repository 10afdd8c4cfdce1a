"""Storms made small: equal events within a window become one row that keeps the count and the first and last time.

The first event of a key passes at once (high severity never waits); the equal ones that follow in
the same window are folded into one *tail* whose identity is that of the first event folded. Why
a replay cannot count twice: the tail as it stands is written, still open, in the very transaction
that moves the source's cursor past the lines it counts. After a crash a line is therefore either
counted in a durable row or still unread, never both, and no identity is ever computed again for
a line that was counted. Windows are cut by the stream's own time (kernel time for kernel lines), so a
clock that jumps neither merges nor splits them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import sighting
from probing_cluster.probe_agent.spool import codec, spool

MAX_OPEN = 4096
"""Keys tracked at once; beyond it events pass unfolded and the spool's own bound holds."""
MAX_PROCESSES = 16
"""Processes that have rows of their own in a window, of equal events of no urgency: a job that has its processes killed a hundred
times a second does not use up its node's rows. Those of further processes are folded into one row."""


@dataclass(kw_only=True)
class _Fold:
    bucket: int
    opened_s: float
    tail: records.HealthEvent | None = None
    count: int = 0
    last_at: datetime | None = None
    dirty: bool = False

    def item(self, *, still_open: bool) -> spool.SpoolItem:
        assert self.tail is not None
        event = dataclasses.replace(self.tail, count=self.count, last_at=self.last_at)
        self.dirty = False
        return event_item(event, still_open=still_open)


def event_item(event: records.HealthEvent, *, still_open: bool = False) -> spool.SpoolItem:
    """The spool's form of one event."""
    return spool.SpoolItem(
        id=event.event_id.bytes,
        lane="event",
        rank=spool.RANK[event.severity],
        body=codec.encode(event),
        folded=event.count,
        open=still_open,
    )


def key_of(sighting: sighting.Sighting, *, process: bool = True) -> Hashable:
    """What makes two sightings equal; without `process` those of any process are."""
    return (
        sighting.source,
        sighting.kind,
        sighting.code,
        sighting.severity,
        sighting.device,
        sighting.pci_bus_id,
        sighting.gpu_uuid,
        sighting.job_id,
        *((sighting.pid, sighting.process) if process else ()),
    )


class Coalescer:
    """Folds one agent's events; `coalesced` counts sightings folded since the last `drain_count`."""

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._folds: dict[Hashable, _Fold] = {}
        self._processes: dict[Hashable, tuple[int, int]] = {}
        """Of equal events of any process: the window, and how many processes have rows of their own in it."""
        self._folded = 0

    def add(
        self,
        sighting: sighting.Sighting,
        make: Callable[[sighting.Sighting], records.HealthEvent],
        *,
        now_s: float,
    ) -> tuple[list[spool.SpoolItem], records.HealthEvent | None]:
        """The items that `sighting` makes ready, and its event; no event (None) when it was folded.

        `make` builds the event and is not called for most of a storm: a folded sighting is a counter.
        """
        if sighting.stream_s is None:
            event = make(sighting)
            return [event_item(event)], event
        bucket = int(sighting.stream_s // self._window_s)
        key = self._key(sighting, bucket)
        fold = self._folds.get(key)
        if fold is not None and fold.bucket == bucket:
            self._fold(fold, sighting, make)
            return [], None
        event = make(sighting)
        ready = [event_item(event)]
        if fold is not None and fold.tail is not None:
            ready.insert(0, fold.item(still_open=False))
        if fold is not None or len(self._folds) < MAX_OPEN:
            self._folds[key] = _Fold(bucket=bucket, opened_s=now_s)
        return ready, event

    def _key(self, sighting: sighting.Sighting, bucket: int) -> Hashable:
        """The key under which a sighting is folded in its window."""
        key = key_of(sighting)
        fold = self._folds.get(key)
        if (
            sighting.pid is None
            or sighting.severity != records.Severity.INFO
            or (fold and fold.bucket == bucket)
        ):
            return key
        any_process = key_of(sighting, process=False)
        window, n = self._processes.get(any_process, (bucket, 0))
        n = n if window == bucket else 0
        if n >= MAX_PROCESSES:
            return any_process
        if len(self._processes) >= MAX_OPEN:
            self._processes.clear()
        self._processes[any_process] = (bucket, n + 1)
        return key

    def open_items(self) -> list[spool.SpoolItem]:
        """The tails that grew since they were last written; they go into the batch's transaction."""
        return [f.item(still_open=True) for f in self._folds.values() if f.dirty]

    def due(self, now_s: float, *, everything: bool = False) -> list[spool.SpoolItem]:
        """Tails whose window has passed, closed; all of them at shutdown."""
        ready: list[spool.SpoolItem] = []
        for key, fold in list(self._folds.items()):
            if everything or now_s - fold.opened_s >= self._window_s:
                del self._folds[key]
                if fold.tail is not None:
                    ready.append(fold.item(still_open=False))
        return ready

    @property
    def has_open(self) -> bool:
        """True while a window is open and `due` has to be asked again."""
        return bool(self._folds)

    def drain_count(self) -> int:
        """Sightings folded into others since the last call."""
        folded, self._folded = self._folded, 0
        return folded

    def _fold(
        self,
        fold: _Fold,
        sighting: sighting.Sighting,
        make: Callable[[sighting.Sighting], records.HealthEvent],
    ) -> None:
        if fold.tail is None:
            fold.tail, fold.count = make(sighting), 0
        else:
            self._folded += sighting.count
        fold.count += sighting.count
        fold.last_at = sighting.at if fold.last_at is None else max(fold.last_at, sighting.at)
        fold.dirty = True
