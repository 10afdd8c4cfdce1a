"""Forked lanes: nothing that one step does can stop the others."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import processes
from probing_cluster.healthchecks import lanes


def step(
    key: str, work: Callable[[lanes.Facts], Mapping[str, Any]], deadline_s: float = 0.2, **more: Any
) -> lanes.Step:
    return lanes.Step(key=key, work=work, deadline_s=deadline_s, **more)


def fine(key: str, **more: Any) -> lanes.Step:
    return step(key, lambda _: {"said": key}, 5.0, **more)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A pipe that nobody writes to: opening it sleeps in the kernel."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def hang_on(fifo: Path) -> Callable[[lanes.Facts], Mapping[str, Any]]:
    def work(_: lanes.Facts) -> Mapping[str, Any]:
        os.open(fifo, os.O_RDONLY)
        return {}

    return work


class Unkillable(processes.Edge):
    """A kernel in which SIGKILL does nothing until it is let go."""

    grace_s = 0.05

    def __init__(self) -> None:
        self.held: list[int] = []

    def kill_group(self, pid: int) -> None:
        self.held.append(pid)

    def let_go(self) -> None:
        for pid in self.held:
            super().kill_group(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


@pytest.fixture
def unkillable() -> Iterator[Unkillable]:
    """An edge whose children survive SIGKILL; they really end with the test."""
    edge = Unkillable()
    yield edge
    edge.let_go()


def test_steps_answer_in_order_and_share_facts() -> None:
    """A fact of one step is there for the next, in the same child and in the parent."""
    first = step("reading", lambda _: {"value": 42}, 5.0, fact=True)
    second = step("judge", lambda facts: {"saw": facts["reading"]["value"]}, 5.0)
    answers, facts = lanes.Lanes().run([[first, second]], watchdog_s=10)
    assert answers["judge"].value == {"saw": 42}
    assert facts["reading"] == {"value": 42}


def test_a_hang_costs_only_its_own_step(fifo: Path) -> None:
    """The step that hangs times out; those before keep their answers, those behind get theirs."""
    run = lanes.Lanes()
    answers, _ = run.run([[fine("a"), step("b", hang_on(fifo)), fine("c"), fine("d")]], watchdog_s=10)
    assert [answers[k].timed_out for k in "abcd"] == [False, True, False, False]
    assert answers["d"].value == {"said": "d"}
    assert answers["b"].error == "no answer in 0.2 s"
    assert len(run.stuck) == 0


def test_facts_survive_the_hang_of_a_later_fact(fifo: Path) -> None:
    """What was read before a hang is there for readers afterwards, and the hang itself is a fact."""
    reader = step("reader", lambda facts: {"a": facts["a"], "b": facts["b"]}, 5.0)
    chain = [fine("a", fact=True), step("b", hang_on(fifo), fact=True), reader]
    answers, _ = lanes.Lanes().run([chain], watchdog_s=10)
    assert answers["reader"].value == {
        "a": {"said": "a"},
        "b": {"error": "no answer in 0.2 s", "timed_out": True},
    }


def test_a_stopped_child_is_ended_too() -> None:
    """A child that was stopped (SIGSTOP) is killed at its deadline like any other."""
    answers, _ = lanes.Lanes().run(
        [[step("a", lambda _: os.kill(os.getpid(), signal.SIGSTOP) or {})]], watchdog_s=10
    )
    assert answers["a"].timed_out


def test_a_child_that_dies_is_an_error_of_its_step() -> None:
    """A crash says which signal; the steps behind it go on."""
    crash = step("a", lambda _: os.kill(os.getpid(), signal.SIGKILL) or {}, 5.0)
    quits = step("b", lambda _: os._exit(7), 5.0)
    answers, _ = lanes.Lanes().run([[crash, quits, fine("c")]], watchdog_s=10)
    assert answers["a"].error == "its process died (signal 9)"
    assert answers["b"].error == "its process died (exit 7)"
    assert answers["c"].value == {"said": "c"}


def test_an_answer_that_is_no_json_is_an_error() -> None:
    """A value that cannot be told is the step's error, not the child's death."""
    answers, _ = lanes.Lanes().run([[step("a", lambda _: {"x": object()}, 5.0), fine("b")]], watchdog_s=10)
    assert "TypeError" in str(answers["a"].error)
    assert answers["b"].value is not None


def test_a_large_answer_arrives() -> None:
    """An answer larger than a pipe holds comes through whole."""
    big = "x" * 3_000_000
    answers, _ = lanes.Lanes().run([[step("a", lambda _: {"big": big}, 5.0)]], watchdog_s=10)
    assert answers["a"].value == {"big": big}


def test_the_watchdog_ends_everything(fifo: Path) -> None:
    """Whatever the steps' own deadlines, the whole run ends at the watchdog, every step with an answer."""
    run = lanes.Lanes()
    answers, _ = run.run(
        [[step("a", hang_on(fifo), 600.0), fine("b")], [step("c", hang_on(fifo), 600.0)]], watchdog_s=0.4
    )
    assert {k: a.timed_out for k, a in answers.items()} == {"a": True, "b": True, "c": True}
    assert "watchdog" in str(answers["b"].error)


def test_the_whole_process_group_dies(tmp_path: Path) -> None:
    """What a hanging step had started is ended with it."""
    note = tmp_path / "pid"

    def work(_: lanes.Facts) -> Mapping[str, Any]:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        note.write_text(str(child))
        time.sleep(60)
        return {}

    for deadline_s in (0.5, 2.0, 8.0, 32.0):  # until it has started something in time: a machine may be busy
        lanes.Lanes().run([[step("a", work, deadline_s)]], watchdog_s=60)
        if note.exists() and note.read_text():
            break
    grandchild = int(note.read_text())
    until = time.monotonic() + 60
    while processes.identify(grandchild) is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert processes.identify(grandchild) is None


def test_one_stuck_child_at_most(fifo: Path, unkillable: Unkillable) -> None:
    """A child that survives SIGKILL is remembered and shown, its step not started again until it is gone."""
    run = lanes.Lanes(unkillable)
    chain = [step("a", hang_on(fifo)), fine("b")]
    answers, _ = run.run([chain], watchdog_s=10)
    assert "stuck in the kernel" in str(answers["a"].error)
    assert answers["b"].value is not None
    assert [key for key, _ in run.stuck.items()] == ["a"]
    first = run.stuck.of("a")
    assert first is not None

    again, _ = run.run([chain], watchdog_s=10)
    assert f"not started: its process (pid {first.identity.pid})" in str(again["a"].error)
    assert again["a"].timed_out
    assert again["b"].value is not None
    assert run.stuck.of("a") == first
    assert len({*unkillable.held}) >= 1

    unkillable.let_go()
    after, _ = run.run([[fine("a"), fine("b")]], watchdog_s=10)
    assert after["a"].value is not None
    assert len(run.stuck) == 0


def test_a_family_shares_its_stuck_child(fifo: Path, unkillable: Unkillable) -> None:
    """After one network mount cannot be killed, the others of its family are not tried, nor called overdue; local ones are."""
    run = lanes.Lanes(unkillable)
    chain = [
        fine("/"),
        step("/nfs1", hang_on(fifo), family="mounts", fact=True),
        fine("/nfs2", family="mounts", fact=True),
    ]
    answers, facts = run.run([chain], watchdog_s=10)
    assert answers["/"].value is not None
    assert "not started" in str(answers["/nfs2"].error)
    assert (facts["/nfs1"]["timed_out"], facts["/nfs2"]["timed_out"]) == (True, False)
    again, facts = run.run([chain], watchdog_s=10)
    assert "not started: the process for /nfs1" in str(again["/nfs2"].error)
    assert (facts["/nfs1"]["timed_out"], facts["/nfs2"]["timed_out"]) == (True, False)
    assert [key for key, _ in run.stuck.items()] == ["mounts"]


def test_a_fact_that_the_watchdog_left_unread_is_not_overdue(fifo: Path) -> None:
    """Its mount was not asked; the one whose process it ended was."""
    chain = [step("/a", hang_on(fifo), 600.0, fact=True), fine("/b", fact=True)]
    _, facts = lanes.Lanes().run([chain], watchdog_s=0.4)
    assert (facts["/a"]["timed_out"], facts["/b"]["timed_out"]) == (True, False)


def test_no_descriptor_and_no_child_is_left(fifo: Path) -> None:
    """A run with hangs and crashes leaves neither open files nor zombies."""
    run = lanes.Lanes()
    before = {p.name for p in Path("/proc/self/fd").iterdir()}
    children = _children()
    run.run([[step("a", hang_on(fifo)), step("b", lambda _: os._exit(1), 5.0), fine("c")]], watchdog_s=10)
    assert {p.name for p in Path("/proc/self/fd").iterdir()} == before
    assert _children() <= children


def _children() -> set[int]:
    """This process's children, ended ones included; other tests may have some of their own."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def test_children_hold_none_of_our_pipes() -> None:
    """A child's standard streams are /dev/null: stuck, it must not keep the reader of our output waiting."""
    answers, _ = lanes.Lanes().run(
        [
            [
                step(
                    "a",
                    lambda _: {str(fd): str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in (0, 1, 2)},
                    5.0,
                )
            ]
        ],
        watchdog_s=10,
    )
    assert answers["a"].value == dict.fromkeys(("0", "1", "2"), "/dev/null")
