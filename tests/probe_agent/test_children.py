"""Children: answers within a deadline, whole groups killed, one stuck child per key at most."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import processes
from probing_cluster.probe_agent import children

ECHO = "import sys\nfor line in sys.stdin:\n    print(line.strip(), flush=True)\n"
PYTHON = [sys.executable, "-I", "-S", "-c"]


def alive(pid: int) -> bool:
    """It is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_command_gives_status_and_both_outputs() -> None:
    """What a tool says and how it ended."""

    async def work() -> children.Finished:
        return await children.Children().run(
            "t", ["/bin/sh", "-c", "cat; echo no >&2; exit 3"], deadline_s=10, stdin=b"in"
        )

    done = asyncio.run(work())
    assert (done.returncode, done.stdout, done.stderr) == (3, b"in", b"no\n")


def test_an_input_larger_than_a_pipe_holds_nobody_up() -> None:
    """The paths of a job's output can be so long; a child that is slow to read them must not stop the agent."""

    async def work() -> tuple[float, bytes, bytes]:
        program = "import sys,time; time.sleep(1); print(len(sys.stdin.read()))"
        started, longest_s, at_s = children.Children(), 0.0, time.monotonic()
        command = asyncio.create_task(
            started.run("t", [*PYTHON, program], deadline_s=30, stdin=b"x" * 1_000_000)
        )
        idle = asyncio.create_task(started.run("u", ["/bin/true"], deadline_s=30, stdin=b"x" * 1_000_000))
        while not command.done():
            await asyncio.sleep(0.01)
            longest_s, at_s = max(longest_s, time.monotonic() - at_s), time.monotonic()
        return longest_s, (await command).stdout, (await idle).stdout

    longest_s, length, nothing = asyncio.run(work())
    assert (length, nothing) == (b"1000000\n", b"")
    assert longest_s < 0.7


def test_a_lanes_question_larger_than_a_pipe_is_answered() -> None:
    """It is written as the child reads it."""

    async def work() -> dict[str, Any]:
        lane = children.Lane(children.Children(), "echo", [*PYTHON, ECHO])
        answer = await lane.ask({"x": "y" * 300_000}, deadline_s=30)
        await lane.close()
        return answer

    assert asyncio.run(work()) == {"x": "y" * 300_000}


def test_a_users_stuck_children_stop_their_own_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user has theirs; where many are stuck, each user may still have one."""
    started = children.Children()
    stuck = [f"py-spy 5 {n}" for n in range(children.MAX_STUCK)]
    monkeypatch.setattr(children.Children, "hung", property(lambda _: tuple(stuck)))
    assert [started.may_start("py-spy", uid) for uid in (5, 55, 6)] == [False, True, True]
    assert started.may_start("perf", 5)
    stuck += [f"py-spy 6 {n}" for n in range(children.MAX_STUCK_IN_ALL)]
    assert [started.may_start("py-spy", uid) for uid in (5, 6, 7)] == [False, False, True]


def test_command_that_hangs_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    """A grandchild does not outlive its deadline either."""
    pid_file = tmp_path / "pid"

    async def work() -> children.Children:
        started = children.Children()
        argv = ["/bin/sh", "-c", f"sleep 600 & echo $! > {pid_file}; wait"]
        for deadline_s in (0.5, 2.0, 8.0, 32.0):  # until it has come so far in time: a machine may be busy
            with pytest.raises(children.ChildHung, match="no answer within"):
                await started.run("t", argv, deadline_s=deadline_s)
            if pid_file.exists() and pid_file.read_text():
                break
        return started

    started = asyncio.run(work())
    grandchild = int(pid_file.read_text())
    # Killed; whoever adopts orphans on this machine may leave it as a zombie.
    until = time.monotonic() + 60
    while alive(grandchild):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert started.hung == ()


def test_missing_program_is_a_failure_not_an_exception() -> None:
    """A tool that is not there is one known error."""
    with pytest.raises(processes.ChildFailed):
        asyncio.run(children.Children().run("t", ["/no/such/tool"], deadline_s=1))


def test_output_without_end_is_cut() -> None:
    """A tool that never stops talking costs its deadline, not our memory."""

    async def work() -> children.Finished:
        script = "head -c 3000000 /dev/zero"
        return await children.Children().run("t", ["/bin/sh", "-c", script], deadline_s=20, max_bytes=1000)

    assert len(asyncio.run(work()).stdout) == 1000


def test_lane_keeps_one_child_and_replaces_one_that_died() -> None:
    """Answers come from the same process until it fails; the next question starts another."""

    async def work() -> list[Any]:
        lane = children.Lane(children.Children(), "echo", [*PYTHON, ECHO])
        first = await lane.ask({"n": 1}, deadline_s=10)
        pid = lane.pid
        second = await lane.ask({"n": 2}, deadline_s=10)
        same = lane.pid == pid
        assert pid is not None
        os.kill(pid, 9)
        with pytest.raises(processes.ChildFailed):
            await lane.ask({"n": 3}, deadline_s=10)
        third = await lane.ask({"n": 4}, deadline_s=10)
        await lane.close()
        return [first, second, same, third]

    assert asyncio.run(work()) == [{"n": 1}, {"n": 2}, True, {"n": 4}]


def test_lane_that_hangs_is_killed_and_answers_again() -> None:
    """A call that never returns costs one child."""
    script = "import sys,time\nfor line in sys.stdin:\n    time.sleep(600) if 'hang' in line else print(line, flush=True, end='')\n"

    async def work() -> dict[str, Any]:
        lane = children.Lane(children.Children(), "x", [*PYTHON, script])
        with pytest.raises(children.ChildHung):
            await lane.ask({"op": "hang"}, deadline_s=0.5)
        answer = await lane.ask({"op": "well"}, deadline_s=10)
        await lane.close()
        return answer

    assert asyncio.run(work()) == {"op": "well"}


def test_garbage_from_a_child_is_a_failure() -> None:
    """What is no answer is not half-believed."""

    async def work() -> None:
        lane = children.Lane(children.Children(), "x", ["/bin/sh", "-c", "read x; echo not json"])
        await lane.ask({}, deadline_s=10)

    with pytest.raises(processes.ChildFailed):
        asyncio.run(work())


class Unkillable(processes.Edge):
    """A node on which SIGKILL ends nothing, as in D state."""

    def kill_group(self, pid: int) -> None:
        del pid


def test_child_that_survives_sigkill_is_counted_and_none_is_started_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most one stuck child per key, shown until it is gone."""
    monkeypatch.setattr(children, "_REAP_S", 0.05)
    started = children.Children(stuck=processes.StuckChildren(Unkillable()))
    with pytest.raises(children.ChildHung, match="no answer within"):
        asyncio.run(started.run("mount /x", ["/bin/sleep", "60"], deadline_s=0.1))
    assert started.hung == ("mount /x",)
    with pytest.raises(children.ChildHung, match="stuck in the kernel"):
        started.start("mount /x", ["/bin/true"])
    other = started.start("mount /y", ["/bin/true"])
    other.communicate()
    held = started.stuck.of("mount /x")
    assert held is not None
    assert processes.EDGE.end(held.identity.pid) is None
    assert started.hung == ()


@pytest.mark.parametrize("line", [b"[" * 100_000, b"[1]", b"null", b"7", b"", b"{", b"\xff"])
def test_an_answer_that_is_no_object_is_a_value_error(line: bytes) -> None:
    """Of a child that runs as a job's owner: nesting without end is no other kind of failure."""
    with pytest.raises(ValueError, match=r"."):
        children.answer_of(line)
    assert children.answer_of(b'{"a": 1}\n') == {"a": 1}


def test_a_child_whose_kill_is_cancelled_is_still_collected() -> None:
    """The agent's end cancels what already ends: the child stays on the list, is no zombie, and Popen has nothing to warn of."""
    started = children.Children(stuck=processes.StuckChildren(Unkillable()))

    async def cancelled_twice() -> None:
        work = asyncio.create_task(started.run("slow", ["/bin/sleep", "60"], deadline_s=60.0))
        for _ in range(2):
            await asyncio.sleep(0.05)
            work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    asyncio.run(cancelled_twice())
    held = started.stuck.of("slow")
    assert held is not None
    assert processes.EDGE.end(held.identity.pid) is None
    assert started.hung == ()
