"""Running tools: deadlines, groups, bounds, and the list of children that will not die."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from probing_cluster.core import processes

ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C"}


def shell(script: str, deadline_s: float = 10.0) -> processes.Output:
    return processes.run(["/bin/sh", "-c", script], deadline_s=deadline_s, env=ENV)


def gone(pid: int) -> bool:
    until = time.monotonic() + 60
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
    for deadline_s in (0.5, 2.0, 8.0, 32.0):  # until it has come so far in time: a machine may be busy
        answer = shell(f"echo before; sleep 600 & echo $! > {tmp_path}/pid; wait", deadline_s=deadline_s)
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
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
    assert not processes.EDGE.alive(processes.ProcessIdentity(pid=me.pid, started="1"))


def test_input_of_any_size_is_fed_while_output_is_read() -> None:
    """More than a pipe holds goes in and comes out; a tool that reads nothing does not hold us."""
    data = bytes(range(256)) * 4096
    answer = processes.run(["/bin/cat"], deadline_s=20, env=ENV, stdin=data, max_bytes=None)
    assert (answer.stdout, answer.code) == (data, 0)
    unread = processes.run(["/bin/true"], deadline_s=20, env=ENV, stdin=data)
    assert (unread.stdout, unread.code) == (b"", 0)


def test_leftovers_may_be_left_alone() -> None:
    """A site's own command may start what goes on after it."""
    argv = ["/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]
    answer = processes.run(argv, deadline_s=10.0, env=ENV, end_group=False)
    pid = int(answer.out)
    assert answer.code == 0
    assert processes.identify(pid) is not None
    os.kill(pid, 9)


class Unkillable(processes.Edge):
    """Nothing dies of SIGKILL, as in D state."""

    def end(self, pid: int) -> processes.ProcessIdentity | None:
        return processes.identify(pid)


def test_the_list_of_stuck_children_frees_a_key_when_its_process_is_gone() -> None:
    """Held while it lives, shown with its place and age, kept over a restart of ours, and forgotten with its end."""
    stuck = processes.StuckChildren()
    answer = processes.run(["/bin/sleep", "60"], deadline_s=0.05, env=ENV, edge=Unkillable())
    assert answer.stuck is not None
    stuck.hold("mounts", answer.stuck, "its process")
    held = stuck.of("mounts")
    assert held is not None
    assert held.description.startswith(f"its process (pid {answer.stuck.pid}) is stuck in the kernel")
    assert (stuck.of("other"), len(stuck)) == (None, 1)
    later = processes.StuckChildren()
    later.restore(stuck.to_state())
    assert later.of("mounts") == held
    assert processes.EDGE.end(answer.stuck.pid) is None
    assert (stuck.of("mounts"), later.of("mounts"), len(stuck)) == (None, None, 0)


def test_a_child_may_write_to_our_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """A pass in a process of its own logs where the service logs."""
    words = ["/bin/sh", "-c", "echo answer; echo log >&2"]
    done = processes.run(words, deadline_s=60.0, env=ENV, own_stderr=False)
    assert (done.stdout, done.stderr, done.code) == (b"answer\n", b"", 0)
    assert capfd.readouterr().err == "log\n"
    assert shell("echo log >&2").stderr == b"log\n"


def test_a_deadline_may_be_none_at_all() -> None:
    """Infinitely many seconds are more than the kernel takes at once."""
    assert shell("sleep 0.1; echo done", math.inf).stdout == b"done\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_child_of_another_account() -> None:
    """Its uid, gid and groups, and none of ours."""
    account = processes.Account(uid=65534, gid=65533, groups=(7,))
    child = processes.start(["/usr/bin/id"], account=account)
    assert child.stdout is not None
    words = child.communicate()[0].decode()
    assert ("uid=65534" in words, "gid=65533" in words, "groups=65533" in words, "7(" in words) == (True,) * 4
    assert "root" not in words
