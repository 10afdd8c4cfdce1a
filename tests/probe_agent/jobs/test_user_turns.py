"""Places for readers of jobs' files are shared among users, not among files."""

from __future__ import annotations

import asyncio
import contextlib

from probing_cluster.probe_agent.jobs import user_turns


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class _Reader:
    """One reader that works until it is let go."""

    def __init__(self, turns: user_turns.ReaderTurns, uid: int) -> None:
        self.works = False
        self.end = asyncio.Event()
        self.task = asyncio.create_task(self._read(turns, uid))

    async def _read(self, turns: user_turns.ReaderTurns, uid: int) -> None:
        async with turns.of(uid):
            self.works = True
            await self.end.wait()
        self.works = False


def test_a_user_with_many_slow_readers_leaves_another_a_place() -> None:
    """At once, however many of the first wait already; and what ends goes to whoever has least."""

    async def scenario() -> None:
        turns = user_turns.ReaderTurns(3, 2)
        slow = [_Reader(turns, 1) for _ in range(50)]
        await _settle()
        assert sum(r.works for r in slow) == 2
        quick = _Reader(turns, 2)
        await _settle()
        assert quick.works
        third = _Reader(turns, 3)
        await _settle()
        assert not third.works
        slow[0].end.set()
        await _settle()
        assert third.works
        assert sum(r.works for r in slow) == 1
        for reader in (*slow, quick, third):
            reader.end.set()
        await asyncio.gather(*(r.task for r in (*slow, quick, third)))

    asyncio.run(scenario())


def test_who_goes_away_while_waiting_holds_no_place() -> None:
    """Cancelled while it waits, or just after it was given its place: in the end all places are free."""

    async def scenario() -> None:
        turns = user_turns.ReaderTurns(1, 1)
        first, second, third = (_Reader(turns, 1) for _ in range(3))
        await _settle()
        third.task.cancel()
        first.end.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.task.cancel()
        await _settle()
        for reader in (second, third):
            with contextlib.suppress(asyncio.CancelledError):
                await reader.task
        last = _Reader(turns, 1)
        await _settle()
        assert last.works
        last.end.set()
        await last.task

    asyncio.run(scenario())
