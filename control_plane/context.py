"""What every scheduled task is given: the settings, the store, Slurm, the clock and the task journal."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from probing_cluster.control_plane import journal
from probing_cluster.control_plane.gangs import gang_pace
from probing_cluster.control_plane.policy import actions, restart_acts, resume_policy
from probing_cluster.control_plane.repair import workflow
from probing_cluster.core import clock, settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import commands

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class AgentListening:
    """How the service has looked at the agents; since when they can be heard is the database's (`listen_anew`)."""

    looked_s: float = 0.0
    """The last look, by the monotonic clock."""
    looked_at: datetime | None = None
    """The same by the wall clock; None before the first."""
    missed: bool = False
    """Whether the database did not answer the last look."""
    doubted_s: float = float("-inf")
    """When most agents were last silent together, by the monotonic clock: they were given the time to be heard."""


@dataclass(kw_only=True)
class Context:
    """One running service."""

    config: settings.Settings
    store: db_store.Store
    run_slurm: commands.Runner
    slurm: actions.SlurmOperations
    clock: clock.Clock = clock.SYSTEM
    journal: journal.Journal = field(default_factory=lambda: journal.Journal())
    green: dict[str, resume_policy.GreenTime] = field(default_factory=dict)
    looked_everywhere_s: float = float("-inf")
    """When actions last looked at every node, by the monotonic clock."""
    answered_looked_at_s: float = float("-inf")
    """When actions last asked Slurm about faults that a drain has answered, by the monotonic clock."""
    silent: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    """Silent nodes of which it is written that Slurm does not reach them either."""
    listening: AgentListening = field(default_factory=AgentListening)
    stalls: dict[int, uuid.UUID] = field(default_factory=dict)
    """Per job the last stall for which its nodes have been asked."""
    paces: dict[int, gang_pace.GangPace] = field(default_factory=dict)
    """Per running job what its steps take."""
    looked: dict[int, float] = field(default_factory=dict)
    """Per job when its nodes were last asked for stacks on somebody's request, by the monotonic clock."""
    questions: list[tuple[float, str]] = field(default_factory=list)
    """When, by the monotonic clock, and by whom running jobs were asked for tables in the last minute."""
    blind_since: dict[str, datetime] = field(default_factory=dict)
    """Per task since when it has not worked."""
    restarts: restart_acts.RestartMemory = field(default_factory=lambda: restart_acts.RestartMemory())
    """Logs that nodes have been asked to keep, and when exclusions were looked at."""
    late_ends_queried: set[tuple[int, datetime]] = field(default_factory=set)
    """Attempts, as job and submission, that run by our rows and that polls of accounting do not list: asked for by their ids already."""
    resized: dict[tuple[int, datetime], bool] = field(default_factory=dict)
    """Job and submission of rows that began while their job ran by our rows: whether its history shows them as part of a resized attempt."""
    ends_looked_at: set[tuple[int, datetime, str]] = field(default_factory=set)
    """Ends of which it is known whether we owe a mail that Slurm does not send: job, submission, Slurm's word."""
    repair_context: workflow.RepairContext | None = None
    """What the repair workflow touches, and the rounds of tests that run in this service."""
    tests_read: bool = False
    """Whether failed tests of the days before the service began were made events."""
    tests_reported: set[uuid.UUID] = field(default_factory=set)
    """Events of failed tests that are stored."""
    orphans_sought: bool = False
    """Whether reservations of ours without a repair were looked for since the service began."""
    in_children: bool = False
    """Whether passes that take much memory run in a process of their own."""
    aside: Callable[[Callable[[], object]], None] = field(default=lambda work: _at_once(work))
    """Begins work that no pass waits for; outside the service it is done at once."""
    stopping: threading.Event = field(default_factory=threading.Event)
    _seldom: dict[str, tuple[float, Any]] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What a task reads, it reads of its own cluster; a pass over all of them asks for `store.of(None)`."""
        self.store = self.store.of(self.cluster)

    @property
    def cluster(self) -> str:
        """The cluster that this service acts for; its database may hold others."""
        return self.config.cluster.name

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
