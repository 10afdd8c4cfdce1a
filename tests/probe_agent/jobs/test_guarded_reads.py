"""Reads of /proc that hang hold up one thread, and nobody else."""

from __future__ import annotations

import os
import threading
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
