"""A file that several jobs append to: whose lines are the attempt's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from probing_cluster.evidence.joblog import appended

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
