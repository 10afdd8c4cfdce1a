"""Reads of /proc that hang hold up one thread, and nobody else."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from probing_cluster.probe_agent.jobs import guarded_reads, processes


def test_a_process_that_hangs_is_not_asked_again_until_it_answers() -> None:
    """Others are, while threads are left."""
    reads, answers, begun = guarded_reads.GuardedReads(), threading.Event(), list[int]()

    def hang() -> int:
        begun.append(1)
        answers.wait(60)
        return 7

    for _ in range(3):
        with pytest.raises(guarded_reads.ProcessHangs):
            reads.read(4242, 1000, hang)
    assert begun == [1]
    assert reads.read(4243, 1000, lambda: 8) == 8
    ((_, thread),) = reads._hung.values()
    answers.set()
    thread.join(60)
    assert reads.read(4242, 1000, hang) == 7


def test_no_more_threads_hang_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user's processes use up that user's threads, and no other's. Whom nobody asks does not count as ended."""
    monkeypatch.setattr(guarded_reads, "DEADLINE_S", 0.01)
    reads, answers = guarded_reads.GuardedReads(), threading.Event()
    for pid in range(guarded_reads.MAX_HUNG):
        with pytest.raises(guarded_reads.ProcessHangs):
            reads.read(pid, 1000, lambda: answers.wait(60))
    assert len(reads._hung) == guarded_reads.MAX_HUNG_OF_ONE
    with pytest.raises(guarded_reads.ProcessHangs):
        reads.read(4242, 1000, lambda: True)
    assert reads.read(4243, 1001, lambda: True)
    for uid in range(2000, 2000 + guarded_reads.MAX_HUNG):
        with pytest.raises(guarded_reads.ProcessHangs):
            reads.read(uid, uid, lambda: answers.wait(60))
    assert len(reads._hung) == guarded_reads.MAX_HUNG
    with pytest.raises(guarded_reads.ProcessHangs):
        reads.read(4243, 1001, lambda: True)
    hung = [thread for _, thread in reads._hung.values()]
    answers.set()
    for thread in hung:
        thread.join(60)
    assert reads.read(4242, 1000, lambda: True)


class Ticks:
    """A clock that stands still but while something is read."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def slow(self, seconds: float) -> Callable[[], bool]:
        def work() -> bool:
            self.now_s += seconds
            return True

        return work


def answered(reads: guarded_reads.GuardedReads, uid: int, work: Callable[[], bool], times: int) -> int:
    """How many of a user's processes are read, one after another."""
    count = 0
    for pid in range(times):
        with contextlib.suppress(guarded_reads.ProcessHangs):
            count += reads.read(uid * 1000 + pid, uid, work)
    return count


def test_slow_reads_of_one_user_are_waited_for_so_long_and_no_longer() -> None:
    """250 processes that each answer just in time stood a node's event loop still for 43 s."""
    ticks = Ticks()
    reads = guarded_reads.GuardedReads(ticks.monotonic_s)
    began_s = ticks.now_s
    assert answered(reads, 1000, ticks.slow(0.2), 250) == 3
    assert ticks.now_s - began_s < guarded_reads.WAIT_S + guarded_reads.DEADLINE_S
    assert answered(reads, 1001, ticks.slow(0.0002), 250) == 250
    ticks.now_s += 5.0
    assert answered(reads, 1000, ticks.slow(0.2), 250) == 3


def test_no_read_is_waited_for_longer_than_is_left() -> None:
    """The last one, too: half a second is a bound, not the point at which a quarter more may follow."""
    ticks = Ticks()
    reads = guarded_reads.GuardedReads(ticks.monotonic_s)
    assert reads._deadline_s(1000) == guarded_reads.DEADLINE_S
    assert answered(reads, 1000, ticks.slow(0.4), 1)
    assert reads._deadline_s(1000) == pytest.approx(0.1)


def test_many_users_with_slow_reads_hold_up_nobody_for_long() -> None:
    """Each waits out their own budget: together they come to little, and an honest user's processes are read all the same."""
    ticks = Ticks()
    reads = guarded_reads.GuardedReads(ticks.monotonic_s)
    began_s = ticks.now_s
    for uid in range(2000, 2020):
        answered(reads, uid, ticks.slow(0.015), 250)
    assert ticks.now_s - began_s < 3.0, "twenty users"
    assert reads._deadline_s(1000) == guarded_reads.SHORT_S
    assert answered(reads, 1000, ticks.slow(0.002), 200) == 200


def test_a_process_of_another_owner_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever names others' processes would use up the waiting for them."""
    monkeypatch.setattr(guarded_reads, "READS", reads := guarded_reads.GuardedReads())
    assert processes.facts(os.getpid(), owner=os.getuid() + 1) is None
    assert not reads._budgets
    assert processes.facts(os.getpid(), owner=os.getuid()) is not None
    assert reads._budgets


def test_what_a_read_raises_is_raised() -> None:
    def fail() -> None:
        raise PermissionError("no")

    with pytest.raises(PermissionError, match="no"):
        guarded_reads.GuardedReads().read(1, 1000, fail)


def test_facts_of_a_process_whose_stat_hangs(tmp_path: Path) -> None:
    """Unknown, which is not the same as gone."""
    home = tmp_path / "4242"
    home.mkdir()
    os.mkfifo(home / "stat")
    (home / "status").write_text("Name:\tpython\nState:\tD (disk sleep)\nPPid:\t7\n")
    with pytest.raises(guarded_reads.ProcessHangs):
        processes.facts(4242, tmp_path)
    assert processes.facts(4243, tmp_path) is None
    assert (processes.parent_of(4242, tmp_path), processes.state_of(4242, tmp_path)) == (7, "D")
    with (home / "stat").open("w") as answer:
        answer.write("")
