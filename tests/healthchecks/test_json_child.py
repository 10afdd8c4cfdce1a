"""JSON children: answers within a deadline, replaced when they die, never doubled."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

import pytest

from probing_cluster.core import processes
from probing_cluster.healthchecks import json_child

ECHO = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"


def test_json_child_answers_and_is_replaced_when_it_dies() -> None:
    """The child is started when asked, keeps running, and a dead one is replaced at the next question."""
    child = json_child.JsonChild([sys.executable, "-c", ECHO])
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
    child = json_child.JsonChild([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(processes.ChildFailed, match="no answer in"):
        child.ask({}, deadline_s=0.2)
    assert child.pid is None


def test_json_child_that_does_not_read_holds_up_nobody() -> None:
    """A question larger than the pipe is under the deadline like the answer; a child that reads it gets it whole."""
    large = {"a": "x" * (4 << 20)}
    child = json_child.JsonChild([sys.executable, "-c", "import time; time.sleep(60)"])

    def ask() -> None:
        with contextlib.suppress(processes.ChildFailed):
            child.ask(large, deadline_s=0.2)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    assert not asking.is_alive()
    assert child.pid is None
    reading = json_child.JsonChild([sys.executable, "-c", ECHO])
    assert reading.ask(large, deadline_s=20) == large
    reading.close()


def test_json_child_that_babbles_is_an_error() -> None:
    """An answer that is no JSON is an error, not an exception of another kind."""
    child = json_child.JsonChild(["/bin/sh", "-c", "read x; echo what?"])
    with pytest.raises(processes.ChildFailed):
        child.ask({}, deadline_s=20)


def test_json_child_stuck_in_the_kernel_is_not_doubled() -> None:
    """While an unkillable child lives no second one is started; when it is gone a new one is."""

    class Unkillable(processes.Edge):
        def end(self, pid: int) -> processes.ProcessIdentity | None:
            return processes.identify(pid)

    child = json_child.JsonChild([sys.executable, "-c", "import time; time.sleep(60)"], edge=Unkillable())
    with pytest.raises(processes.ChildFailed):
        child.ask({}, deadline_s=0.1)
    assert child.stuck is not None
    stuck = child.stuck
    with pytest.raises(processes.ChildFailed, match="stuck in the kernel"):
        child.ask({}, deadline_s=20)
    processes.EDGE.end(stuck.identity.pid)
    child.argv = [sys.executable, "-c", ECHO]
    assert child.ask({"a": 1}, deadline_s=20) == {"a": 1}
    child._stuck.edge = processes.EDGE
    child.close()
