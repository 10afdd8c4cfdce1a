"""The places at a door: so many at once, so many of one source; when all are taken, who has said nothing yet gives way to who comes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

MOST = 64
MOST_OF_ONE = 16
"""Connections served at once, and of these from one uid or one address."""
MOST_OF_SLURM = 96
"""Those of the controller's uids, beside them: Slurm runs 64 mail programs at once, and each hands its mail over or it goes out without a verdict."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DoorPlace:
    """One connection that is served."""

    source: object
    """A uid, or an address."""
    handle: socket.socket
    """A second one on the connection: TLS takes the first away."""


class DoorPlaces:
    """The places of one door."""

    def __init__(self, slurm: Collection[object]) -> None:
        self._slurm = slurm
        self._at_once: Counter[object] = Counter()
        self._silent: dict[DoorPlace, None] = {}
        """Those that have not asked yet, oldest first."""
        self._lock = threading.Lock()

    def take(self, connection: socket.socket, source: object) -> DoorPlace | None:
        """A place; None where there is none, and none can be made. Raises OSError."""
        with self._lock:
            if not self._has_room(source):
                return None
            place = DoorPlace(source=source, handle=connection.dup())
            self._at_once[source] += 1
            self._silent[place] = None
            return place

    def request_read(self, place: DoorPlace) -> None:
        """Its question is here whole: it gives way to nobody."""
        with self._lock:
            self._silent.pop(place, None)

    def leave(self, place: DoorPlace) -> None:
        """It is over."""
        with self._lock:
            self._silent.pop(place, None)
            self._at_once[place.source] -= 1
            self._at_once += Counter()  # forgets the zeros
            place.handle.close()

    def _has_room(self, source: object) -> bool:
        mine = self._at_once[source]
        if source in self._slurm:
            return mine < MOST_OF_SLURM
        if mine >= MOST_OF_ONE:
            return False
        others = sum(n for s, n in self._at_once.items() if s not in self._slurm)
        return others < MOST or self._makes_room(mine)

    def _makes_room(self, mine: int) -> bool:
        """Ends the oldest silent connection of whoever has most of them, where that is more than the newcomer has."""
        silent = [place for place in self._silent if place.source not in self._slurm]
        counts = Counter(place.source for place in silent)
        if not silent or max(counts.values()) <= mine + 1:
            return False
        oldest = next(p for p in silent if counts[p.source] == max(counts.values()))
        del self._silent[oldest]
        with contextlib.suppress(OSError):  # gone by itself
            oldest.handle.shutdown(socket.SHUT_RDWR)
        return True
