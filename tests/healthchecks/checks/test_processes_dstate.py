"""Processes stuck in the kernel."""

from __future__ import annotations

import os
from typing import Any

from probing_cluster.core.records import Outcome


def test_a_moment_is_nothing_and_lasting_fails(node: Any) -> None:
    """D state fails only when the same process is seen so for five minutes."""
    node.process(10, "python", "D")
    node.process(11, "sshd")
    finding = node.check("processes_dstate")
    assert finding.outcome is Outcome.OK
    assert "1 in D state just now" in finding.message
    node.later(300)
    finding = node.check("processes_dstate")
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.FAIL, "python", 300)


def test_another_process_with_the_same_id(node: Any) -> None:
    """A new process with the old id has its own time; so has one that came back from D state."""
    node.process(10, "python", "D")
    node.check("processes_dstate")
    node.later(300)
    node.process(10, "python", "D", switches=9)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_files_that_can_hang_are_not_read(node: Any) -> None:
    """The stat of a process inside an exec is read by nobody until the exec ends; here it is a pipe that nobody writes to."""
    node.process(10, "python", "D")
    os.mkfifo(node.root / "proc/10/stat")
    assert node.check("processes_dstate").message == "1 processes, none stuck, 1 in D state just now"


def test_a_busy_reader_is_not_stuck(node: Any) -> None:
    """A process seen in D state at two looks that has run between them is only doing I/O."""
    node.process(10, "dd", "D", switches=7)
    node.check("processes_dstate")
    node.later(600)
    node.process(10, "dd", "D", switches=9)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_kernel_threads_wait_by_trade(node: Any) -> None:
    """Kernel threads in D state are no fault."""
    node.process(50, "kworker/0:1+events", "D", parent=2)
    node.check("processes_dstate")
    node.later(3600)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_names_with_spaces_and_parentheses(node: Any) -> None:
    """A process named `a) D (b` does not fool the parser."""
    node.process(10, "a) D (b", "S")
    node.check("processes_dstate")
    node.later(600)
    assert node.check("processes_dstate").outcome is Outcome.OK


def test_no_proc(node: Any) -> None:
    """Without processes there is nothing to judge."""
    assert node.check("processes_dstate").outcome is Outcome.ABSENT
