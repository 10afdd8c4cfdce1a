"""A long job log costs an import little, and is read as if line by line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.control_plane.imports import joblog
from probing_cluster.core import records, vocabulary
from probing_cluster.evidence.joblog import reader, standstill

START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
TRACE = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    main()",
    "KeyError: 'lr'",
]
OTHER = "slurmstepd: error: *** JOB 6 ON n1 CANCELLED AT 2026-01-30T08:00:00 ***"


def attempt(state: str = "FAILED") -> records.JobAttempt:
    return records.JobAttempt(
        cluster="c",
        job_id=7,
        submit_at=START,
        start_at=START,
        end_at=START + timedelta(hours=8),
        nodes=("n1",),
        state=state,
        user="alice",
    )


def steps(n: int = 5000) -> list[str]:
    return [
        f"{START + timedelta(seconds=2 * s):%Y-%m-%d %H:%M:%S},123 INFO trainer: step {s} loss 1.97"
        for s in range(n)
    ]


class Fed:
    """What the reader of findings and that of steps were fed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[int] = []
        self.steps: list[int] = []
        feed, feed_step = reader.JobLogReader.feed, standstill.LogSteps.feed

        def one(this: reader.JobLogReader, line: int, text: str) -> Iterator[object]:
            self.lines.append(line)
            return feed(this, line, text)

        def step(this: standstill.LogSteps, line: int, text: str) -> None:
            self.steps.append(line)
            feed_step(this, line, text)

        monkeypatch.setattr(reader.JobLogReader, "feed", one)
        monkeypatch.setattr(standstill.LogSteps, "feed", step)


def read(lines: list[str], state: str = "FAILED") -> list[records.HealthEvent]:
    encoded = [f"{line}\r\n".encode() for line in lines]
    return joblog.read(iter(encoded), attempt(state), START, UTC, lambda: encoded)


def test_ordinary_lines_are_not_judged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million of them took a minute and a half of CPU time; what was found stays the same."""
    fed = Fed(monkeypatch)
    (event,) = read([*steps(), *TRACE])
    assert (event.message, event.detail["line"]) == ("KeyError: 'lr'", 5004)
    assert len(fed.lines) < 100
    assert len(fed.steps) < 100


def test_steps_are_read_where_the_log_may_have_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled job whose log went on until its end is not read again; one whose log stopped is, and the silence is found."""
    fed = Fed(monkeypatch)
    assert [e.kind for e in read(steps(14_390), "CANCELLED")] == [vocabulary.LOG_PROGRESS]
    assert len(fed.steps) < 300
    (event,) = read(steps(5000), "CANCELLED")
    assert event.kind == vocabulary.LOG_STALL
    assert event.detail["line"] == 5000
    assert len(fed.steps) > 5000


def test_lines_of_others_are_left_out_in_the_middle_of_a_batch() -> None:
    """An earlier job's end begins the file anew, and lines about other jobs are no evidence; numbers stay the file's."""
    assert read([*TRACE, OTHER, "epoch 1"]) == []
    (event,) = read([*TRACE, OTHER, *steps(20), *TRACE])
    assert event.detail["line"] == 29
    other = "srun: error: n1: task 0: Killed of StepId=6.0"
    assert read(["epoch 1", other, "epoch 2"]) == []
