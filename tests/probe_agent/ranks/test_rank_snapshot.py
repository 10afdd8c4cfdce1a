"""A snapshot is no longer than the database keeps, and says most of what the innermost frames say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.ranks import nic_traffic, rank_snapshot
from probing_cluster.probe_agent.stacks import pyspy


def frames(n: int, words: int = 60) -> list[dict[str, Any]]:
    """A stack, innermost frame first."""
    return [{"function": f"f{i}", "file": "x" * words, "line": i} for i in range(n)]


def detail(
    n_ranks: int, n_frames: int, n_threads: int, words: int = 60, n_calls: int = 16, n_groups: int = 2
) -> dict[str, Any]:
    calls = [
        {
            "group": str(i % n_groups),
            "seq": i,
            "op": "all_reduce",
            "numel": 1 << 20,
            "group_size": 1024,
            "waited_s": 1.234567,
        }
        for i in range(n_calls)
    ]
    entry = {
        "stack": frames(n_frames, words),
        "native": [],
        "other_stacks": [frames(7, words)] * n_threads,
        "calls": calls,
    }
    return {
        "ranks": [{"rank": i, "phase": "training", **entry} for i in range(n_ranks)],
        "more": 0,
        "last": False,
    }


def length(found: dict[str, Any]) -> int:
    return len(json.dumps(found))


def test_of_many_children_the_first_ones_are_read_and_the_others_counted(tmp_path: Path) -> None:
    """A rank with 12,000 zombies must not hold up Prologs for seconds."""
    pids = range(100, 100 + 1000)
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    (tmp_path / "7" / "task" / "7" / "children").write_text(" ".join(map(str, pids)))
    for pid in pids:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text("Name:\tpython\nState:\tZ (zombie)\n")
    taker = rank_snapshot.SnapshotTaker(
        children=children.Children(), gpus=lambda: None, nics=nic_traffic.NicTraffic(None), proc=tmp_path
    )
    n_read = rank_snapshot.MAX_WORKERS
    assert taker._workers(7) == {"workers": "Z" * n_read, "more_workers": len(pids) - n_read}
    (tmp_path / "7" / "task" / "7" / "children").write_text("100 101")
    assert taker._workers(7) == {"workers": "ZZ"}


def test_a_snapshot_of_an_ordinary_node_is_kept() -> None:
    """Eight ranks with a main thread of 25 frames and six threads: the database kept nothing of it."""
    whole = detail(8, 25, 6, words=70)
    assert length(whole) > 65_536
    fitted = rank_snapshot._fitted(whole)
    assert length(fitted) <= rank_snapshot.MAX_CHARS
    assert [r["stack"] for r in fitted["ranks"]] == [r["stack"] for r in whole["ranks"]]
    assert all(r["other_stacks"] for r in fitted["ranks"])


def test_a_short_snapshot_is_left_alone() -> None:
    whole = detail(2, 25, 2)
    assert rank_snapshot._fitted(whole) is whole


@pytest.mark.parametrize(
    ("words", "n_calls", "n_groups"), [(60, 16, 2), (500, 16, 2), (500, 0, 1), (500, 16, 16)]
)
def test_of_many_ranks_each_keeps_its_innermost_frames_and_its_last_call(
    words: int, n_calls: int, n_groups: int
) -> None:
    """Whatever a user calls functions and files: a rank that is left out would seem not to have come."""
    whole = detail(64, 100, 32, words, n_calls, n_groups)
    fitted = rank_snapshot._fitted(whole)
    assert length(fitted) <= rank_snapshot.MAX_CHARS
    assert [r["rank"] for r in fitted["ranks"]] == list(range(64))
    for cut, entry in zip(fitted["ranks"], whole["ranks"], strict=True):
        assert cut["stack"] == entry["stack"][: len(cut["stack"])]
        assert cut["calls"][-1:] == entry["calls"][-1:]
        if words == 60:
            assert len({call["group"] for call in cut["calls"]}) == 2, (
                "a rank may be the one that others wait for in either"
            )


def test_of_many_threads_no_more_than_a_bound_is_kept() -> None:
    """The main one's stack always is."""
    thread = {"frames": [{"name": "f" * 200, "filename": "g" * 300, "line": 1}] * 100, "os_thread_id": 1}
    answer = pyspy._answer([thread, *({**thread, "os_thread_id": i} for i in range(2, 34))], {1})
    assert len(answer["stack"]) == pyspy.MAX_FRAMES
    assert len(json.dumps(answer["other_stacks"])) <= pyspy.MAX_CHARS
    small = {"frames": [{"name": "f", "filename": "g", "line": 1}]}
    assert len(pyspy._answer([dict(small) for _ in range(9)], {1})["other_stacks"]) == 8
