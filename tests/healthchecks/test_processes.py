"""Running tools and JSON children: deadlines, groups, bounds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from probing_cluster.healthchecks import processes

ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C"}

ECHO = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"


def shell(script: str, deadline_s: float = 10.0) -> processes.Output:
    return processes.run(["/bin/sh", "-c", script], deadline_s=deadline_s, env=ENV)


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while processes.identify(pid) is not None and time.monotonic() < until:
        time.sleep(0.01)
    return processes.identify(pid) is None


def test_output_and_exit_code() -> None:
    """Both streams and the exit code come back; stdin is empty."""
    answer = shell("echo out; echo err >&2; cat; exit 3")
    assert (answer.out, answer.err, answer.code, answer.timed_out) == ("out\n", "err\n", 3, False)


def test_a_signal_is_negative() -> None:
    """A tool ended by a signal says which."""
    assert shell("kill -9 $$").code == -9


def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    """At the deadline the tool and everything it started die, and what it had said is kept."""
    answer = shell(f"echo before; sleep 60 & echo $! > {tmp_path}/pid; wait", deadline_s=0.5)
    assert answer.timed_out
    assert answer.out == "before\n"
    assert answer.stuck is None
    assert gone(int((tmp_path / "pid").read_text()))


def test_leftovers_die_after_a_normal_end(tmp_path: Path) -> None:
    """A tool that ends well and leaves a process behind does not leave it for long."""
    answer = shell(f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/pid; exit 0")
    assert answer.code == 0
    assert gone(int((tmp_path / "pid").read_text()))


def test_endless_output_is_cut() -> None:
    """A tool that never stops talking is cut at the bound and ended at its deadline."""
    answer = shell("yes", deadline_s=1.0)
    assert answer.timed_out
    assert answer.truncated
    assert processes.MAX_OUTPUT_BYTES <= len(answer.out) <= processes.MAX_OUTPUT_BYTES + 65536


def test_foreign_bytes_are_replaced() -> None:
    """Output that is not UTF-8 is no exception."""
    assert shell(r"printf '\377x'").out == "\ufffdx"


def test_identity_tells_processes_apart() -> None:
    """We are ourselves; a pid that is not there is nobody."""
    me = processes.identify(os.getpid())
    assert me is not None
    assert processes.EDGE.alive(me)
    assert not processes.EDGE.alive(processes.Identity(pid=me.pid, started="1"))


def test_json_child_answers_and_is_replaced_when_it_dies() -> None:
    """The child is started when asked, keeps running, and a dead one is replaced at the next question."""
    child = processes.JsonChild([sys.executable, "-c", ECHO])
    assert child.ask({"a": 1}, deadline_s=20) == {"a": 1}
    first = child.pid
    assert child.ask({"a": 2}, deadline_s=20) == {"a": 2}
    assert child.pid == first
    assert first is not None
    os.kill(first, 9)
    with pytest.raises(processes.ChildFailed):
        child.ask({"a": 3}, deadline_s=20)
    assert child.ask({"a": 4}, deadline_s=20) == {"a": 4}
    child.close()
    assert child.pid is None


def test_json_child_that_falls_silent_is_ended() -> None:
    """No answer in time is an error, and the silent child is gone."""
    child = processes.JsonChild([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(processes.ChildFailed, match="no answer in"):
        child.ask({}, deadline_s=0.2)
    assert child.pid is None


def test_json_child_that_babbles_is_an_error() -> None:
    """An answer that is no JSON is an error, not an exception of another kind."""
    child = processes.JsonChild(["/bin/sh", "-c", "read x; echo what?"])
    with pytest.raises(processes.ChildFailed):
        child.ask({}, deadline_s=20)


def test_json_child_stuck_in_the_kernel_is_not_doubled() -> None:
    """While an unkillable child lives no second one is started; when it is gone a new one is."""

    class Unkillable(processes.Edge):
        def end(self, pid: int) -> processes.Identity | None:
            return processes.identify(pid)

    child = processes.JsonChild([sys.executable, "-c", "import time; time.sleep(60)"], edge=Unkillable())
    with pytest.raises(processes.ChildFailed):
        child.ask({}, deadline_s=0.1)
    assert child.stuck is not None
    stuck = child.stuck
    with pytest.raises(processes.ChildFailed, match="stuck in the kernel"):
        child.ask({}, deadline_s=20)
    processes.EDGE.end(stuck.pid)
    child.argv = [sys.executable, "-c", ECHO]
    assert child.ask({"a": 1}, deadline_s=20) == {"a": 1}
    child._edge = processes.EDGE
    child.close()
