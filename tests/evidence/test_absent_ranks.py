"""Of a collective that every rank but a few gave up, those few are named as absent."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from probing_cluster.evidence.joblog import reader


def _gave_up(rank: int, seq: int = 48211, op: str = "ALLREDUCE", group: str = "") -> str:
    return (
        f"[rank{rank}]:[E902 22:41:10.100007311 ProcessGroupNCCL.cpp:616] {group}[Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800018 milliseconds before timing out."
    )


def _absent(lines: Iterable[str]) -> list[int] | None:
    (first,) = [f for f in reader.read(lines) if f.first_cause]
    assert first.kind == "watchdog_timeout"
    return first.detail.get("ranks")


@pytest.mark.parametrize("culprit", [0, 3, 6])
def test_the_one_rank_without_a_timeout_of_its_own_is_absent(culprit):
    lines = [_gave_up(r) for r in range(8) if r != culprit]
    (first,) = [f for f in reader.read(lines) if f.first_cause]
    assert (first.detail["ranks"], first.detail["missing"]) == ([culprit], True)
    assert f"Every rank but {culprit} reports it" in first.meaning


@pytest.mark.parametrize(
    "lines",
    [
        [_gave_up(r) for r in range(8)],
        [_gave_up(r) for r in (0, 3, 7)],
        [_gave_up(r) for r in (0, 2)],
        [_gave_up(r) for r in range(8, 16)],
        [_gave_up(r, seq=48211 if r < 4 else 7) for r in range(8) if r != 5],
        [_gave_up(r, group="[PG ID 3 PG GUID 17(tensor_parallel) Rank 1] ") for r in range(8) if r != 5],
        [*(_gave_up(r) for r in range(8) if r != 5), "[rank5]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"],
    ],
    ids=["all came", "most say nothing", "too few", "a node's ranks", "other numbers", "a smaller group", "the rank speaks"],
)  # fmt: skip
def test_nobody_is_named_where_the_others_do_not_all_tell_of_it(lines):
    assert _absent(lines) is None


def test_pytorchs_own_report_goes_before_a_count():
    report = "[rank1]: lagging/dead/mismatched ranks that caused the desync are:   - [2] finished collective #48210, but didn't join collective #48211"
    lines = [*(_gave_up(r) for r in range(8) if r != 5), report]
    (first,) = [f for f in reader.read(lines) if f.first_cause]
    assert first.detail.get("ranks") != [5]


def _woken(rank: int, enqueued: int, group: str = "0 PG GUID 0(default_pg)") -> str:
    return (
        f"[rank{rank}]:[E902 22:41:15.1 ProcessGroupNCCL.cpp:1914] [PG ID {group} Rank {rank}] Received a dump signal due to a collective timeout from rank 0 "
        f"and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {enqueued}."
    )


def test_a_rank_that_had_entered_only_the_collective_before_is_absent_however_many_say_nothing():
    lines = [_gave_up(0), _gave_up(4), _woken(3, 48210), _woken(6, 48210), _woken(1, 48212)]
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert (found.detail["ranks"], found.detail["missing"]) == ([3, 6], True)
    assert "2 ranks had not entered it yet" in found.meaning


@pytest.mark.parametrize(
    "woken",
    [_woken(3, 48211), _woken(3, 7), _woken(0, 48210), _woken(3, 48210, "5 PG GUID 9(tensor_parallel)")],
    ids=["in it", "another count", "it waits itself", "another group"],
)
def test_a_count_that_says_nothing_names_nobody(woken):
    assert _absent([_gave_up(0), _gave_up(4), woken]) is None
