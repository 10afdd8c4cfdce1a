"""Which ends of ranks may have begun a failure, and that the kernel tells of them at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from probing_cluster.probe_agent.ranks import deaths

NEWS, TOGETHER, NOTHING = deaths.EndMeaning


def end(died_s: float, *, in_order: bool = False) -> deaths.RankEnd:
    return deaths.RankEnd(died_s=died_s, in_order=in_order)


@pytest.mark.parametrize(
    ("one", "others", "expected"),
    [
        (end(100), [None, None], NEWS),
        (end(100), [], NEWS),
        (end(100), [end(101.5, in_order=True)], NEWS),
        (end(100), [end(130)], NEWS),
        (end(100, in_order=True), [None], NOTHING),
        (end(100), [end(99, in_order=True)], NOTHING),
        (end(100), [end(100.02), end(100.2)], TOGETHER),
        (end(100), [end(98), None], NOTHING),
        (end(100), [end(10, in_order=True), None], NEWS),
        (end(100.2), [end(100), end(10, in_order=True)], TOGETHER),
        (end(100.8), [end(100), end(101.6)], NOTHING),
    ],
    ids=[
        "the others live",
        "alone on its node",
        "its sibling failed because of it",
        "its sibling was killed much later",
        "an orderly end",
        "killed because its sibling had ended",
        "all ended from outside",
        "killed because its sibling was",
        "its sibling had finished long before",
        "all ended from outside after others had finished",
        "one of many that fell one after another",
    ],
)
def test_a_death_that_may_have_begun_a_failure(
    one: deaths.RankEnd, others: list[deaths.RankEnd | None], expected: deaths.EndMeaning
) -> None:
    """Slurm kills every task of a failed step: those deaths tell nothing, or only later."""
    assert deaths.fate(one, others) is expected


def process() -> subprocess.Popen[bytes]:
    """Lives until it reads a line."""
    return subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)


def test_the_kernel_tells_at_once() -> None:
    """The end of a watched process wakes whoever waits; one that is forgotten does not."""
    first, second = process(), process()

    async def watch() -> tuple[float | None, float | None]:
        watcher = deaths.DeathWatch(time.monotonic)
        watched, forgotten = watcher.add(first.pid, 1000), watcher.add(second.pid, 1000)
        assert watched is not None
        assert forgotten is not None
        watcher.forget(forgotten)
        for one in (second, first):
            one.communicate(b"\n")
        await asyncio.wait_for(watcher.somebody.wait(), 30)
        watcher.close()
        return watched.died_s, forgotten.died_s

    died_s, forgotten = asyncio.run(watch())
    assert died_s is not None
    assert died_s <= time.monotonic()
    assert forgotten is None


def test_a_process_that_is_gone_is_not_watched() -> None:
    """No descriptor is kept for it."""
    done = process()
    done.communicate(b"\n")

    async def watch() -> deaths.WatchedProcess | None:
        watcher = deaths.DeathWatch(time.monotonic)
        watched = watcher.add(done.pid, 1000)
        watcher.close()
        return watched

    assert asyncio.run(watch()) is None


def test_two_watches_of_one_process_end_apart() -> None:
    """Whoever lets go of a process ends their own watch over it only."""
    one = process()

    async def watch() -> float | None:
        watcher = deaths.DeathWatch(time.monotonic)
        first, second = watcher.add(one.pid, 1000), watcher.add(one.pid, 1000)
        assert first is not None
        watcher.forget(second)
        watcher.forget(second)
        one.communicate(b"\n")
        await asyncio.wait_for(watcher.somebody.wait(), 30)
        watcher.close()
        return first.died_s

    assert asyncio.run(watch()) is not None


def test_one_users_processes_leave_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is free again once its process has ended or is forgotten."""
    monkeypatch.setattr(deaths, "MAX_WATCHED", 4)
    monkeypatch.setattr(deaths, "MAX_WATCHED_OF_ONE", 2)
    one = process()

    async def watch() -> list[bool]:
        watcher = deaths.DeathWatch(time.monotonic)
        uids = (1000, 1000, 1000, 1001, 1001, 1002)
        watches = [watcher.add(one.pid, uid) for uid in uids]
        watcher.forget(watches[0])
        again = watcher.add(one.pid, 1000)
        watcher.close()
        return [w is not None for w in (*watches, again)]

    assert asyncio.run(watch()) == [True, True, False, True, True, False, True]
    one.communicate(b"\n")
