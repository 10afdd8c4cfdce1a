"""Places for readers of jobs' files. A free place goes to the user with the fewest, so that slow files of one user delay no other."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator


class ReaderTurns:
    """At most `at_once` readers at once, and `of_one` of one user; used in one event loop."""

    def __init__(self, at_once: int, of_one: int) -> None:
        self._at_once = at_once
        self._of_one = of_one
        self._running: Counter[int] = Counter()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._last: int | None = None
        """The user who got the last place. Among users with equally many, another one is next."""

    @contextlib.asynccontextmanager
    async def of(self, uid: int) -> AsyncIterator[None]:
        """Wait for a place of `uid`, and hold it while the block runs."""
        given = asyncio.get_running_loop().create_future()
        self._waiting.append((uid, given))
        self._give()
        try:
            await given
            yield
        finally:
            if (uid, given) in self._waiting:  # cancelled before it had one
                self._waiting.remove((uid, given))
            else:
                self._running[uid] -= 1
                self._running += Counter()  # forgets the zeros
            self._give()

    def _give(self) -> None:
        while self._running.total() < self._at_once:
            # A task that was cancelled while it waited takes itself out of the list only when it next runs.
            fits = [w for w in self._waiting if self._running[w[0]] < self._of_one and not w[1].done()]
            if not fits:
                return
            chosen = min(fits, key=lambda w: (self._running[w[0]], w[0] == self._last))
            self._waiting.remove(chosen)
            self._last = chosen[0]
            self._running[chosen[0]] += 1
            chosen[1].set_result(None)
