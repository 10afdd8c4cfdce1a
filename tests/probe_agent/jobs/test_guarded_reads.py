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
            reads.read(4242, hang)
    assert begun == [1]
    assert reads.read(4243, lambda: 8) == 8
    (thread,) = reads._hung.values()
    answers.set()
    thread.join(60)
    assert reads.read(4242, hang) == 7


def test_no_more_threads_hang_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody is asked, and nobody counts as ended."""
    monkeypatch.setattr(guarded_reads, "DEADLINE_S", 0.01)
    reads, answers = guarded_reads.GuardedReads(), threading.Event()
    for pid in range(guarded_reads.MAX_HUNG):
        with pytest.raises(guarded_reads.ProcessHangs):
            reads.read(pid, lambda: answers.wait(60))
    with pytest.raises(guarded_reads.ProcessHangs):
        reads.read(4242, lambda: True)
    hung = list(reads._hung.values())
    answers.set()
    for thread in hung:
        thread.join(60)
    assert reads.read(4242, lambda: True)


def test_what_a_read_raises_is_raised() -> None:
    def fail() -> None:
        raise PermissionError("no")

    with pytest.raises(PermissionError, match="no"):
        guarded_reads.GuardedReads().read(1, fail)


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
