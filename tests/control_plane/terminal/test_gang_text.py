"""Ranks and stacks as people read them: 80 columns, trouble first, ten thousand ranks in a few lines."""

from __future__ import annotations

from typing import Any

import gang_rows
import pytest

from probing_cluster.attribution.gang import stacks, views
from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.control_plane.terminal import gang_text
from probing_cluster.core import records

HEAD = {
    "job": "7", "job_id": 7, "name": "llama-70b", "state": "RUNNING", "ended": False, "silent_nodes": [],
    "started_at": "2026-11-21T10:00:00Z", "made_at": "2026-11-21T11:00:03Z", "world_size": 8, "findings": [],
}  # fmt: skip


def ranks(rows: dict[int, dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """The document of some ranks, two a node."""
    beats = [
        records.AgentHeartbeat(
            cluster="c", node=f"n{r // 2 + 1}", at=gang_rows.fakes.NOW, ranks={f"7:{r}": row}
        )
        for r, row in rows.items()
    ]
    return HEAD | {"ranks": [rank_rows.to_json(r) for r in rank_rows.of_heartbeats(beats)]} | changes


def tree(entries: dict[int, list[tuple[str, str, int]]], **changes: Any) -> dict[str, Any]:
    """The document of some stacks."""
    ranks = [views.from_snapshot("n1", gang_rows.entry(r, stack)) for r, stack in entries.items()]
    merged = stacks.merge((v.rank, v.stack) for v in ranks if v is not None)
    usual = {"at": "2026-11-21T11:00:00Z", "n_ranks": len(entries), "without": {}, "finding": None}
    return HEAD | usual | {"tree": stacks.fold(merged).to_json(), "world_size": len(entries)} | changes


def test_alike_ranks_are_one_line_and_trouble_comes_first() -> None:
    """Seven wait in the same collective, one is stopped: two lines, the stopped one above."""
    rows = {
        r: gang_rows.row(r, stalled=True, steps=41, step_age_s=35.0, inside="all_reduce 0#41")
        for r in range(8)
    }
    rows[5] |= {"state": "T", "inside": ""}
    found = {"at": "2026-11-21T10:59:00Z", "kind": "rank_slow", "node": "n3", "words": "rank 5 is slow " * 9}
    page = gang_text.ranks(ranks(rows, findings=[found]))
    lines = page.splitlines()
    assert lines[0] == "Job 7  llama-70b  RUNNING  8 ranks"
    table = lines[lines.index(next(line for line in lines if line.startswith("RANKS"))) :]
    assert table[1].split() == ["5", "n3", "stalled", "(training)", "41", "35", "s", "T"]
    assert table[2].split()[:2] == ["0-4,6-7", "n[1-4]"]
    assert table[2].endswith("all_reduce 0#41")
    assert max(len(line) for line in lines) <= 80


def test_a_gang_that_gets_on_is_one_line_with_its_pace() -> None:
    """Each rank is somewhere else at each moment: no line per collective."""
    rows = gang_rows.gang(9)
    for rank, row in rows.items():
        row |= {"inside": f"all_reduce 0#{rank}", "steps": 160 + rank % 3}
    page = gang_text.ranks(ranks(rows))
    assert "0.21" in page
    assert page.splitlines()[-1].split()[:4] == ["0-7", "n[1-4]", "training", "160-162"]


def test_a_rank_outside_of_the_collective_in_which_the_others_wait_has_its_own_line() -> None:
    """Long before it counts as stalled; an operation that has just begun tells nobody apart."""
    waiting = {r: gang_rows.row(r, steps=0, inside="all_reduce 0#20", inside_s=38.0) for r in range(8)}
    outside = waiting | {3: gang_rows.row(3, steps=0)}
    table = gang_text.ranks(ranks(outside)).splitlines()[-2:]
    assert [line.split()[0] for line in table] == ["3", "0-2,4-7"]
    assert [line.endswith("all_reduce 0#20") for line in table] == [False, True]
    begun = {r: row | {"inside_s": 2.0} if row.get("inside") else row for r, row in outside.items()}
    assert [line.split()[0] for line in gang_text.ranks(ranks(begun)).splitlines()[-1:]] == ["0-7"]


def test_everyone_has_a_line_when_asked() -> None:
    """`--all`: own time and waiting of each rank beside each other."""
    page = gang_text.ranks(ranks(gang_rows.gang(9, slow={5: 1.2})), everyone=True)
    row = next(line.split() for line in page.splitlines() if line.startswith("5 "))
    assert row[:4] == ["5", "n3", "1005", "training"]
    assert float(row[-2]) > 0.22
    assert max(len(line) for line in page.splitlines()) <= 80


def test_ten_thousand_ranks_fit_on_a_screen() -> None:
    """A gang of 10,000 in which three are dead."""
    rows = {
        r: gang_rows.row(r, alive=r not in {17, 18, 4711}, stalled=r not in {17, 18, 4711})
        for r in range(10_000)
    }
    page = gang_text.ranks(ranks(rows, world_size=10_000))
    assert len(page.splitlines()) < 12
    assert "17-18,4711" in page
    assert max(len(line) for line in page.splitlines()) <= 80


def test_no_page_is_said_with_the_reasons() -> None:
    """Not seeing is not health."""
    page = gang_text.ranks(ranks({}, world_size=None, silent_nodes=["n1", "n2"]))
    assert "no probe page has been seen" in page
    assert "nothing about this job came from n[1-2]" in page


def test_ranks_of_a_silent_node_have_a_line_of_their_own() -> None:
    """What they did when their node was last heard is no word on now, and makes no other rank look late."""
    document = ranks({r: gang_rows.row(r) for r in range(4)}, silent_nodes=["n2", "n3"])
    for row in document["ranks"]:
        if row["node"] == "n2":
            row |= {"silent": True, "beat_age_s": 75.0}
    page = gang_text.ranks(document).splitlines()
    assert [line.split()[:2] for line in page if " training " in line] == [["0-1", "n1"], ["2-3", "n2"]]
    assert page[-4:] == [
        "",
        "n2 silent for 1 min 15 s: the ranks there are shown as they were",
        "",
        "nothing about this job came from n3",
    ]


def test_an_ended_job_is_said_to_have_ended() -> None:
    """Nothing of it is to come: neither pages nor a word of its nodes is waited for."""
    over = {"state": "FAILED", "ended": True, "silent_nodes": ["n3", "n4"], "world_size": None}
    assert gang_text.ranks(ranks({}, **over)).splitlines() == [
        "Job 7  llama-70b  FAILED  0 ranks",
        "the job has ended and kept no pages of its ranks",
    ]
    assert gang_text.tree(tree({}, **over, at=None)).splitlines()[1:] == [
        "the job has ended and kept no stacks of its ranks"
    ]


def test_the_tree_shows_where_ranks_part() -> None:
    """What all share once, then each group under its ranks; library paths from their package on."""
    page = gang_text.tree(tree({r: gang_rows.LOOP if r == 2 else gang_rows.REDUCE for r in range(4)}))
    assert page.splitlines()[3:] == [
        "main  /home/alice/train.py:40",
        "├ ranks 0-1,3",
        "│ step  /home/alice/train.py:33",
        "│ all_reduce  torch/distributed/distributed_c10d.py:2825",
        "└ rank 2",
        "  loop  /home/alice/train.py:31",
    ]


def test_c_functions_are_the_leaves() -> None:
    """Marked, also where the stack was searched; a long name keeps its end; who has none, and why, is told."""
    frames = [
        {"function": "pthread_cond_wait", "file": "libc.so.6", "line": 0},
        {"function": "a::" * 40 + "AsyncWork::wait", "file": "libtorch_cpu.so", "line": 0, "scanned": True},
    ]
    merged = stacks.merge(
        (v.rank, v.frames)
        for r in range(3)
        if (v := views.from_snapshot("n1", gang_rows.entry(r, gang_rows.REDUCE, native=frames if r else [])))
    )
    document = tree({}, without_native={"its caller is not told": "2"}, n_ranks=3, world_size=3)
    page = gang_text.tree(document | {"tree": stacks.fold(merged).to_json()})
    lines = page.splitlines()
    found = lines.index("all_reduce  torch/distributed/distributed_c10d.py:2825")
    assert lines[found + 1] == "└ ranks 1-2"
    assert lines[found + 2].startswith("  [C?] …")
    assert lines[found + 2].endswith("::AsyncWork::wait  libtorch_cpu.so")
    assert lines[found + 3] == "  [C] pthread_cond_wait  libc.so.6"
    assert max(len(line) for line in lines) <= 80
    assert "C functions of 2 not all seen: its caller is not told" in page


def test_hostile_c_functions_are_clean_and_bounded() -> None:
    """A snapshot is what a user may have written."""
    raw: list[Any] = [{"function": "x\x1b[2J" + "y" * 900, "file": "l\n" * 300}, 3, None] * 100
    view = views.from_snapshot(
        "n1", gang_rows.entry(0, gang_rows.LOOP, native=raw, native_error="w\x07" * 900)
    )
    assert view is not None
    assert 0 < len(view.native) <= views.MAX_NATIVE
    assert "\x1b" not in str(view.native[0])
    assert len(str(view.native[0])) < 600
    odd = views.from_snapshot("n1", gang_rows.entry(0, gang_rows.LOOP, native="none"))
    assert odd is not None
    assert odd.native == ()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_a_deep_and_hostile_tree_is_wider_than_asked(width: int) -> None:
    """Deep recursion, endless names, escapes: cut, cleaned, counted."""
    deep = [(f"f{i}\x1b[2J" + "x" * 300, "/home/" + "d" * 500 + ".py", i) for i in range(100)]
    forks = {r: [(f"g{r}", "a.py", r)] * (r + 1) + deep[: 90 - r] for r in range(60)}
    lines = {
        "kind": "deadlock", "ranks": "0-59", "nodes": ["n1"], "domain": "user_program", "confidence": "likely",
        "summary": "ranks " + "wait " * 60, "where": "f (" + "p" * 400 + ".py:3)", "proof": ["x " * 200] * 20,
        "at": "2026-11-21T11:00:00Z",
    }  # fmt: skip
    page = gang_text.tree(tree(forks, finding=lines, without={"py-spy: " + "e" * 300: "1-9"}), width=width)
    assert max(len(line) for line in page.splitlines()) <= width
    assert "\x1b" not in page
    assert len(page.splitlines()) < gang_text.MAX_LINES + 80


@pytest.mark.parametrize(
    ("at", "then"), [("10:58:30", ", as of 10:58:30Z"), ("10:59:57", ""), ("11:00:01", "")]
)
def test_a_finding_of_another_moment_than_the_stacks_has_its_time(at: str, then: str) -> None:
    """Rank 0 waited then; now it is gone and has no stack."""
    lines = {
        "kind": "user_code", "ranks": "1", "nodes": ["n1"], "domain": "user_program", "confidence": "possible",
        "summary": "rank 1 did not arrive", "where": "", "proof": [], "at": f"2026-11-21T{at}Z",
    }  # fmt: skip
    page = gang_text.tree(tree({1: gang_rows.LOOP}, finding=lines))
    assert f"rank 1 did not arrive: user program, possible{then}\n" in page


def test_what_is_unknown_is_said_once() -> None:
    """Neither domain nor confidence of a wait that is no stall are known."""
    finding = {
        "summary": "the others wait for rank 3 on n4: loading", "where": "", "domain": "unknown", "confidence": "unknown",
        "proof": [], "at": "2026-11-21T11:00:00Z",
    }  # fmt: skip
    page = gang_text.tree(tree({0: gang_rows.LOOP}, finding=finding))
    assert "loading: unknown\n" in page


def test_stacks_never_taken_are_said_so() -> None:
    """Nothing to show is not an empty tree."""
    page = gang_text.tree(tree({}, at=None))
    assert "no stacks have been taken of it yet" in page
