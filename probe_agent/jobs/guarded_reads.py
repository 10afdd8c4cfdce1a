"""Reads of another process's /proc files that may never end.

While a process is inside an exec, the kernel lets nobody read its stat, wchan, io, exe, fd or ns. A user's process stays
there as long as a FUSE file system of theirs likes, for example in the flush of a file that is closed on exec. Such a read
is left to a thread: it holds up that thread and nobody else. status, comm, cgroup, cmdline and task/ never wait (tried on 6.18).
Who asks waits for that thread a little, and may be the agent's event loop: this waiting has a budget per user, and one of all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 0.25
MAX_HUNG, MAX_HUNG_OF_ONE = 64, 4
"""Threads that may hang at once, in all and for one user's processes; beyond, no process, or none of that user's, is asked."""
WAIT_S, WAIT_GROWS_FRAC = 0.5, 0.1
"""Seconds to wait at most for one user's processes, and what grows back of them in a second: all in a beat with jobs (5 s)."""
WAIT_IN_ALL_S, WAIT_IN_ALL_GROWS_FRAC = 1.0, 0.25
"""The same for the processes of all users together."""
SHORT_S = 0.02
"""How long a read may take once all users together have used up their seconds. A user with less than this left is not asked at all."""
QUICK_S = 0.005
"""A read that took no longer is charged to its user as it was, then too: healthy processes answer so on a busy node."""
SHORT_COSTS = 10
"""Every slower read is then charged this many times: many users, each within their own budget, must not hold up the event loop together."""
_MAX_USERS = 4096

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ProcessHangs(Exception):
    """The kernel does not answer about this process now: whether it lives, and what it does, is unknown."""


class _Budget:
    """Seconds that may be waited; they grow back."""

    def __init__(self, most_s: float, grows_frac: float, now_s: float) -> None:
        self._most_s, self._grows_frac = most_s, grows_frac
        self._left_s, self._at_s = most_s, now_s

    def left_s(self, now_s: float) -> float:
        grown_s = (now_s - self._at_s) * self._grows_frac
        self._left_s, self._at_s = min(self._most_s, self._left_s + grown_s), now_s
        return self._left_s

    def is_below(self, seconds: float) -> bool:
        """Whether less was left when it was looked at last."""
        return self._left_s < seconds

    def spend(self, waited_s: float, now_s: float) -> None:
        """Nothing has grown back while it was waited."""
        self._left_s, self._at_s = max(0.0, self._left_s - waited_s), now_s


class GuardedReads:
    """The reads that hang, by process; one is not asked again while its read hangs. What is waited is charged to the process's user."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._in_all = _Budget(WAIT_IN_ALL_S, WAIT_IN_ALL_GROWS_FRAC, monotonic_s())
        self._budgets: dict[int, _Budget] = {}
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
            deadline_s = self._deadline_s(uid)
        if not deadline_s:
            raise ProcessHangs(f"process {pid} is not asked: user {uid}'s processes have used up the waiting")
        results: list[T] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                results.append(work())
            except Exception as exc:  # noqa: BLE001 - raised again where it was asked for
                failures.append(exc)

        thread = threading.Thread(target=run, name=f"proc-{pid}", daemon=True)
        began_s = self._monotonic_s()
        thread.start()
        thread.join(deadline_s)
        self._charge(uid, self._monotonic_s() - began_s)
        if failures:
            raise failures[0]
        if not results:
            with self._lock:
                self._hung[pid] = uid, thread
            _log.warning("process %d does not show itself in /proc; it is not asked until it does", pid)
            raise ProcessHangs(f"process {pid} does not show itself in /proc")
        return results[0]

    def _deadline_s(self, uid: int) -> float:
        """How long a read of this user's process may take now; 0 where none is to be asked."""
        now_s = self._monotonic_s()
        if uid not in self._budgets:
            while len(self._budgets) >= _MAX_USERS:
                del self._budgets[next(iter(self._budgets))]
            self._budgets[uid] = _Budget(WAIT_S, WAIT_GROWS_FRAC, now_s)
        left_s, in_all_s = self._budgets[uid].left_s(now_s), self._in_all.left_s(now_s)
        if left_s < SHORT_S:
            return 0.0
        return min(DEADLINE_S, left_s, max(SHORT_S, in_all_s))

    def _charge(self, uid: int, waited_s: float) -> None:
        with self._lock:
            now_s, short = self._monotonic_s(), self._in_all.is_below(SHORT_S)
            self._in_all.spend(waited_s, now_s)
            if (budget := self._budgets.get(uid)) is not None:
                budget.spend(waited_s * (SHORT_COSTS if short and waited_s > QUICK_S else 1), now_s)


READS = GuardedReads()
