"""What the agent takes from its child about C functions, and of which ranks it asks."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from probing_cluster.core import processes
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.ranks import nic_traffic, rank_snapshot
from probing_cluster.probe_agent.stacks import native, unwind


def answered(monkeypatch: pytest.MonkeyPatch, answer: str) -> dict[int, dict[str, Any]]:
    """What is made of a child's answer about process 7."""
    code = f"import sys; sys.stdin.read(); print({answer!r})"
    monkeypatch.setattr(native, "_CHILD", (sys.executable, "-S", "-c", code))
    return asyncio.run(native.look(children.Children(), {7: None}, (0, 0)))


def test_an_answer_is_cleaned_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are those of users' files."""
    frame = '{"function": "ev\\u001bil' + "x" * 500 + '", "file": "libfoo.so", "scanned": true}'
    read = answered(
        monkeypatch, f'{{"7": {{"native": [{", ".join([frame] * 100)}], "native_error": "w\\u0007hy"}}}}'
    )
    assert len(read[7]["native"]) == unwind.MAX_FRAMES
    assert read[7]["native_error"] == "why"
    first = read[7]["native"][0]
    assert (len(first["function"]), first["file"], first["line"], first["scanned"]) == (
        200,
        "libfoo.so",
        0,
        True,
    )


def test_a_child_that_cannot_be_killed_stops_the_looks_at_its_users_ranks_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It hangs on a file server of that user's, say."""
    monkeypatch.setattr(native, "DEADLINE_S", 0.5)
    unkillable: list[processes.Child] = []

    async def kill(self: children.Children, key: str, child: processes.Child) -> None:
        identity = processes.identify(child.pid)
        assert identity is not None
        self.stuck.hold(key, identity, "the child")
        unkillable.append(child)

    async def look() -> list[dict[str, Any]]:
        started = children.Children()
        monkeypatch.setattr(native, "_CHILD", ("/bin/sleep", "600"))
        hung = await native.look(started, {7: None}, (1000, 1000))
        code = 'import sys; sys.stdin.read(); print(\'{"7": {"native": []}}\')'
        monkeypatch.setattr(native, "_CHILD", (sys.executable, "-S", "-c", code))
        monkeypatch.setattr(native, "DEADLINE_S", 60.0)
        found = [(await native.look(started, {7: None}, (uid, uid)))[7] for uid in (1000, 1001)]
        return [hung[7], *found]

    monkeypatch.setattr(children.Children, "kill", kill)
    try:
        hung, same, other = asyncio.run(look())
    finally:
        for child in unkillable:
            child.kill()
            child.wait()
    assert "no answer" in hung["native_error"]
    assert "the previous one" in same["native_error"]
    assert other == {"native": []}


@pytest.mark.parametrize("answer", ["", "no", "[]", "{}", '{"7": {"native": [3]}}', '{"7": {"native": 3}}'])
def test_what_is_no_answer_is_said(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A child that died on a hostile file costs the C functions, nothing else."""
    read = answered(monkeypatch, answer)
    assert set(read[7]) == {"native_error"}


def test_who_gets_on_is_asked_with_how_often_it_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stalled ranks and those in C code as they are; of one whose Python frames moved, or that is gone, nobody asks."""
    calls: dict[int, int | None] = {}

    async def look(_: object, ranks: dict[int, int | None], owner: object) -> dict[int, dict[str, Any]]:
        assert owner == (1000, 1000)
        calls.update(ranks)
        return {pid: {"native": []} for pid in ranks}

    monkeypatch.setattr(native, "look", look)
    entries: list[dict[str, Any]] = [
        {"pid": 1, "state": "S"},
        {"pid": 2, "state": "S"},
        {"pid": 3, "state": "R", "moved": True, "holds_gil": True},
        {"pid": 4, "state": "R", "holds_gil": True},
        {"pid": 5},
        {"pid": 6, "state": "S"},
    ]
    taker = rank_snapshot.SnapshotTaker(
        children=children.Children(), gpus=lambda: None, nics=nic_traffic.NicTraffic(None)
    )
    slept = {2: 17, 3: 17, 4: 17, 5: None, 6: None}
    asyncio.run(taker._add_native(entries, slept, (1000, 1000)))
    assert calls == {1: None, 4: None, 2: 17}
    assert [e["pid"] for e in entries if "native" in e] == [1, 2, 4]
