"""What every scheduled task is given: the settings, the store, Slurm, the clock and the task journal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from probing_cluster.control_plane import journal
from probing_cluster.control_plane.policy import actions
from probing_cluster.core import clock, settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands

_T = TypeVar("_T")


@dataclass(kw_only=True)
class Context:
    """One running service; a copy of it (`dataclasses.replace`) is another one, whose tasks remember nothing yet."""

    config: settings.Settings
    store: db_store.Store
    run_slurm: commands.Runner
    slurm: actions.SlurmOperations
    clock: clock.Clock = clock.SYSTEM
    journal: journal.Journal = field(default_factory=lambda: journal.Journal())
    in_children: bool = False
    """Whether passes that take much memory run in a process of their own."""
    aside: Callable[[Callable[[], object]], None] = field(default=lambda work: _at_once(work))
    """Begins work that no pass waits for; outside the service it is done at once."""
    stopping: threading.Event = field(default_factory=threading.Event)
    _memory: dict[type, Any] = field(default_factory=dict, init=False)
    _seldom: dict[str, tuple[float, Any]] = field(default_factory=dict, init=False)
    _locks: dict[str, threading.Lock] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """What a task reads, it reads of its own cluster; a pass over all of them asks for `store.of(None)`."""
        self.store = self.store.of(self.cluster)

    @property
    def cluster(self) -> str:
        """The cluster that this service acts for; its database may hold others."""
        return self.config.cluster.name

    def memory(self, kind: type[_T]) -> _T:
        """What a task keeps from pass to pass: this service's one object of a class that the task defines; with its defaults at first."""
        kept: _T = self._memory.setdefault(kind, kind())
        return kept

    @contextlib.contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Holds the lock of this name, or yields False while another thread of this service holds it: some passes are asked for out of turn, too."""
        lock = self._locks.setdefault(name, threading.Lock())
        locked = lock.acquire(blocking=False)
        try:
            yield locked
        finally:
            if locked:
                lock.release()

    def seldom(self, name: str, every_s: float, read: Callable[[], _T]) -> _T:
        """What `read` gave under this name within the last `every_s` seconds, else what it gives now."""
        now_s = self.clock.monotonic_s()
        kept = self._seldom.get(name)
        if kept is None or now_s - kept[0] >= every_s:
            kept = self._seldom[name] = (now_s, read())
        found: _T = kept[1]
        return found


def _at_once(work: Callable[[], object]) -> None:
    work()


Run = Callable[[Context], str]
"""One pass of a task: what it did, in a few words; empty when there was nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One thing the service does again and again: a file in tasks/ and a line in its register."""

    name: str
    meaning: str
    run: Run
    every_s: Callable[[settings.Settings], float] | None = None
    """Seconds between the starts of two passes; None for a daily task."""
    daily_at: Callable[[settings.Settings], str] | None = None
    """`HH:MM` in service.timezone."""
    at_start: bool = True
    """Whether a first pass runs when the service starts."""
    follows: tuple[str, ...] = ()
    """Tasks after whose passes that did something it runs at once, and does not wait for its time."""
