"""Watches training processes for their end, and decides which ends are reported.

The kernel says through a pidfd that a process has ended, within milliseconds; nothing is ever sent to
the process. A process that leaves Python in order writes `ended` on its page. One that does not was
killed or crashed, and either began a failure or was ended because of it; the times of the others tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SETTLE_S = 1.0
"""How long the fate of the other ranks is waited for before a death is judged."""
AT_ONCE_S = 1.0
"""Ranks of a node that all die within this were mostly ended from outside: Slurm ends a job's tasks so."""
TEARDOWN_S = 8.0
"""The Epilog follows the end of a job's tasks sooner; a job that still runs after this has lost its ranks here."""
BECAUSE_S = 30.0
"""A rank that is killed within this after another one ended, however it did, was ended because of it (srun --kill-on-bad-exit)."""
MAX_WATCHED, MAX_WATCHED_OF_ONE = 512, 64
"""Processes watched at once, in all and of one user; a flood of pages must not use up our descriptors, nor the other users' places."""


class WatchedProcess:
    """One process that is watched for one rank; its pid may be another rank's, too, or another process's later."""

    def __init__(self, *, uid: int, fd: int) -> None:
        self.uid = uid
        self.fd = fd
        self.died_s: float | None = None
        """Its end by the monotonic clock; None while it runs."""


class DeathWatch:
    """Pidfds of the ranks on this node."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._open: set[WatchedProcess] = set()
        self.somebody = asyncio.Event()
        """Set when a watched process has ended; cleared by whoever waits for it."""

    def add(self, pid: int, uid: int) -> WatchedProcess | None:
        """Watch a process of `uid`; None where the kernel has no pidfds, the process is gone or there is no room."""
        if not self.has_room(uid):
            return None
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return None
        watched = WatchedProcess(uid=uid, fd=fd)
        self._open.add(watched)
        asyncio.get_running_loop().add_reader(fd, self._ended, watched)
        return watched

    def has_room(self, uid: int) -> bool:
        """Whether one more process of `uid` can be watched."""
        of_this_user = sum(watched.uid == uid for watched in self._open)
        return len(self._open) < MAX_WATCHED and of_this_user < MAX_WATCHED_OF_ONE

    def forget(self, watched: WatchedProcess | None) -> None:
        """Watch a process no longer; other watches of the same process go on."""
        if watched is not None and watched in self._open:
            self._close(watched)

    def close(self) -> None:
        """Watch nothing any longer."""
        for watched in list(self._open):
            self._close(watched)

    def _ended(self, watched: WatchedProcess) -> None:
        watched.died_s = self._monotonic_s()
        self._close(watched)
        self.somebody.set()

    def _close(self, watched: WatchedProcess) -> None:
        self._open.remove(watched)
        with contextlib.suppress(RuntimeError):  # no loop runs any more
            asyncio.get_running_loop().remove_reader(watched.fd)
        os.close(watched.fd)


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank of a node ended."""

    died_s: float
    in_order: bool
    """Its page says `ended`."""


class EndMeaning(enum.Enum):
    """What one end says, held against the ends of the job's other ranks here."""

    NEWS = enum.auto()
    """Out of order, and it may have begun a failure."""
    TOGETHER = enum.auto()
    """All ranks here died at once: with their job, or the node lost them; what becomes of the job tells."""
    NOTHING = enum.auto()
    """In order, or because another one had ended."""


def fate(one: RankEnd, others: Sequence[RankEnd | None]) -> EndMeaning:
    """What an end says; `others` are the job's other ranks here, None = lives."""
    if one.in_order:
        return EndMeaning.NOTHING
    # Who had ended long before belongs to another chapter.
    peers = [o for o in others if o is None or o.died_s >= one.died_s - BECAUSE_S]
    ends = [one, *(o for o in peers if o is not None and not o.in_order)]
    times = [o.died_s for o in ends]
    if peers and len(ends) == len(peers) + 1 and max(times) - min(times) <= AT_ONCE_S:
        return EndMeaning.TOGETHER
    if any(o is not None and o.died_s < one.died_s for o in peers):
        return EndMeaning.NOTHING
    return EndMeaning.NEWS
