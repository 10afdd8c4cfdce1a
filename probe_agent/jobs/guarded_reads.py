"""Reads of another process's /proc files that may never end.

While a process is inside an exec, the kernel lets nobody read its stat, wchan, io, exe, fd or ns. A user's process stays
there as long as a FUSE file system of theirs likes, for example in the flush of a file that is closed on exec. Such a read
is left to a thread: it holds up that thread and nobody else. status, comm, cgroup, cmdline and task/ never wait (tried on 6.18).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 0.25
MAX_HUNG, MAX_HUNG_OF_ONE = 64, 4
"""Threads that may hang at once, in all and for one user's processes; beyond, no process, or none of that user's, is asked."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ProcessHangs(Exception):
    """The kernel does not answer about this process now: whether it lives, and what it does, is unknown."""


class GuardedReads:
    """The reads that hang, by process; one is not asked again while its read hangs."""

    def __init__(self) -> None:
        self._hung: dict[int, tuple[int, threading.Thread]] = {}
        """Process to its user and the thread that reads it."""
        self._lock = threading.Lock()

    def read(self, pid: int, uid: int, work: Callable[[], T]) -> T:
        """`work()`, which reads files of `pid`, a process of `uid`; raises ProcessHangs where it does not end in time, and what `work` raises."""
        with self._lock:
            self._hung = {p: (user, thread) for p, (user, thread) in self._hung.items() if thread.is_alive()}
            of_this_user = sum(user == uid for user, _ in self._hung.values())
            if pid in self._hung or len(self._hung) >= MAX_HUNG or of_this_user >= MAX_HUNG_OF_ONE:
                raise ProcessHangs(f"process {pid} is not asked: it or others hang inside an exec")
        results: list[T] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                results.append(work())
            except Exception as exc:  # noqa: BLE001 - raised again where it was asked for
                failures.append(exc)

        thread = threading.Thread(target=run, name=f"proc-{pid}", daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        if failures:
            raise failures[0]
        if not results:
            with self._lock:
                self._hung[pid] = uid, thread
            _log.warning("process %d does not show itself in /proc; it is not asked until it does", pid)
            raise ProcessHangs(f"process {pid} does not show itself in /proc")
        return results[0]


READS = GuardedReads()
