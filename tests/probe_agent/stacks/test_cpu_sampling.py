"""Python code or C code: from two stacks, and counters where the kernel lets us."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.stacks import cpu_sampling, pyspy

HERE = [{"function": "spin", "file": "train.py", "line": 7}]
THERE = [{"function": "spin", "file": "train.py", "line": 8}]


def look(
    monkeypatch: pytest.MonkeyPatch, counted: Any, *stacks: dict[str, Any]
) -> tuple[dict[str, Any], int]:
    """What is said of a rank first seen HERE and then at `stacks`, and how many of these were asked for."""
    left = list(stacks)

    async def stack(*_: object, **_named: object) -> dict[str, Any]:
        return left.pop(0) if len(left) > 1 else left[0]

    async def count(*_: object) -> Any:
        return counted

    monkeypatch.setattr(pyspy, "stacks", stack)
    monkeypatch.setattr(cpu_sampling, "_counted", count)
    first = {"stack": HERE, "holds_gil": True}
    sample = asyncio.run(cpu_sampling.look(children.Children(), 1, (0, 0), first))
    return sample, len(stacks) - len(left)


def test_with_stuck_readers_of_a_user_no_more_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's memory may lie on a file system of theirs that never answers: each rank would keep a process of root's for good."""
    kinds = ("py-spy", "perf")
    stuck = tuple(f"{kind} 5 {n}" for kind in kinds for n in range(children.MAX_STUCK))
    monkeypatch.setattr(children.Children, "hung", property(lambda _: stuck))
    started: list[str] = []

    async def run(_: children.Children, key: str, *_given: object, **_named: object) -> children.Finished:
        started.append(key)
        return children.Finished(returncode=1, stdout=b"{}", stderr=b"")

    monkeypatch.setattr(children.Children, "run", run)
    for uid in (5, 6):
        found = asyncio.run(pyspy.stacks(children.Children(), 1, uid, command="py-spy"))
        counted = asyncio.run(cpu_sampling._counted(children.Children(), 1, (uid, uid)))
        assert ("stuck" in found["stack_error"], "stuck" in counted) == (uid == 5, uid == 5)
    assert set(started) == {"py-spy 6 1", "perf 6 1"}


def test_frames_that_move_are_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """One later stack is enough where the kernel counts."""
    sample, _ = look(monkeypatch, {"samples": 3}, {"stack": THERE, "holds_gil": True})
    assert sample == {"ran": {"samples": 3}, "moved": True, "holds_gil": True}


def test_a_gil_that_was_let_go_of_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught holding it once is nothing."""
    sample, _ = look(monkeypatch, {"samples": 3}, {"stack": HERE, "holds_gil": False})
    assert (sample["moved"], sample["holds_gil"]) == (False, False)


def test_without_counters_it_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of few lines may be caught twice on the same one."""
    still = {"stack": HERE, "holds_gil": True}
    sample, calls = look(
        monkeypatch, "not permitted", still, still, {"stack": THERE, "holds_gil": True}, still
    )
    assert (sample["ran_error"], sample["moved"], calls) == ("not permitted", True, 3)
    sample, _ = look(monkeypatch, "not permitted", still)
    assert sample == {"ran_error": "not permitted", "moved": False, "holds_gil": True}


def test_a_stack_that_could_not_be_taken_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither that it moved nor that the GIL is held."""
    sample, _ = look(monkeypatch, {"samples": 3}, {"stack_error": "torn"})
    assert (sample["moved"], sample["holds_gil"]) == (False, None)
