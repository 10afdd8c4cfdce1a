"""A file that several jobs append to: whose lines are the attempt's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from probing_cluster.evidence.joblog import appended, reader

START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
OLD = ["2026-03-01 08:00:00,100 - INFO - epoch 1", "Traceback (most recent call last):", "KeyError: 'lr'"]
NEW = [
    "2026-03-01 10:00:09,100 - INFO - epoch 1",
    "RuntimeError: boom",
    "2026-03-01 10:05:09,100 - INFO - over",
]


def begins(lines: list[str], start_at: datetime | None = START, zone: timezone = UTC) -> list[int]:
    log = appended.AppendedLog(start_at, zone)
    return [i for i, line in enumerate(lines) if log.begins(line)]


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        (OLD + NEW, [3]),
        (NEW, []),
        (OLD, []),
        ([*OLD, "Sun Mar  1 10:00:01 UTC 2026", *NEW], [3]),
        ([*OLD, "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T10:00:30 ***"], []),
        (["KeyError: 'lr'"] * 3, []),
        (["step"] * 10_001 + OLD + NEW, []),
    ],
    ids=["two runs", "own", "another's", "date", "Slurm's own word", "no times", "times too late"],
)
def test_the_first_time_after_the_start_begins_the_own_lines(lines: list[str], own: list[int]) -> None:
    assert begins(lines) == own


def test_times_of_another_zone_cut_no_run_in_two() -> None:
    """They pass the start, too, in the middle of the run."""
    every_20_s = [f"{START - timedelta(hours=2) + i * timedelta(seconds=20):%Y-%m-%d %H:%M:%S} step {i}" for i in range(800)]  # fmt: skip
    assert begins(every_20_s) == []
    assert begins(OLD + NEW, zone=timezone(timedelta(hours=2))) == []  # then both runs came before the start


def test_without_a_start_nothing_is_left_out() -> None:
    assert begins(OLD + NEW, None) == []


_BANNER = ["Welcome to the hive cluster", "", "processing file: wax.R"]


def _first_of_runs(*runs: list[str]) -> str | None:
    """The first cause of a log into which these runs wrote one after the other."""
    lines = [line for run in runs for line in [*_BANNER, *run]]
    return next((f.message for f in reader.read(lines) if f.first_cause), None)


def _r(error: str, call: str = "grow(hive)") -> list[str]:
    return [
        f"row {len(error)} of wax",
        f"Error in {call} : ",
        f"  {error}",
        "Calls: <Anonymous> -> grow",
        "Execution halted",
    ]


_LOST, _NONE = _r("object 'comb' not found"), _r("missing value where TRUE/FALSE needed", "if (a > b) { ")


def test_of_two_runs_in_one_log_the_last_ones_error_counts() -> None:
    """The log's first lines show where a run began."""
    long = [f"row {n} of wax" for n in range(90)]
    assert "missing value" in (_first_of_runs(_LOST, [*long, *_NONE]) or "")
    assert "missing value" in (_first_of_runs([*long, *_LOST], _r("subscript out of bounds"), _NONE) or "")
    traced = ["Traceback (most recent call last):", '  File "/w/t.py", line 4, in f', "    g()"]
    assert (
        _first_of_runs([*traced, "KeyError: 'wax'"], [*traced, "ValueError: no bees"])
        == "ValueError: no bees"
    )


def test_a_run_that_began_anew_clears_no_error() -> None:
    """The job itself may have started it, and the earlier error be its reason."""
    for last in (
        ["all rows are done"],
        _r("cannot open file 'comb.rds': No such file or directory", 'readRDS("comb.rds")'),
        _LOST,
        ["CUDA error: an illegal memory access was encountered"],
    ):
        assert "object 'comb'" in (_first_of_runs(_LOST, last) or "")
    traced = ["Traceback (most recent call last):", '  File "/w/t.py", line 4, in f', "    g()"]
    unread = "OSError: [Errno 5] Input/output error: 'comb.rds'"
    assert _first_of_runs([*traced, unread], _NONE) == unread
    room = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0"
    assert _first_of_runs([*traced, room], [*traced, "KeyError: 'wax'"]) == room
    # other work stands between the error and the beginning, or another line than the log's first ones came again
    work = [f"plot {n}" for n in range(9)]
    assert "object 'comb'" in (_first_of_runs([*_LOST, *work], _NONE) or "")
    lines = [*_BANNER, *_LOST, _BANNER[2], *_NONE]
    assert "object 'comb'" in next(f.message for f in reader.read(lines) if f.first_cause)
