"""Since when a job's output has not grown: the looks while it ran, and the file at its end."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.core import vocabulary
from probing_cluster.probe_agent.jobs import jobs, output_growth

T0 = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
SLURM = b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-02T14:07:00 DUE TO TIME LIMIT ***\n"
STEPS = b"".join(b"step %d loss 1.9\n" % n for n in range(6))
END_S = 420.0


def job(**changes: Any) -> jobs.NodeJob:
    return dataclasses.replace(jobs.NodeJob(job_id=7, started_at=T0, uid=1000, gid=1000), **changes)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def looked(*looks: tuple[float, int, float], **changes: Any) -> dict[str, Any] | None:
    """What the reader is prompt after these looks: (seconds after the start, bytes, seconds of the last write)."""
    sizes = output_growth.OutputSizes()
    for when_s, size, written_s in looks:
        sizes.note(
            job(**changes), "/out", output_growth.FileSize(5, size, at(written_s).timestamp()), at(when_s)
        )
    return sizes.question(job(**changes), "/out").get("grown")


def judged(grown: dict[str, Any] | None, data: bytes) -> output_growth.OutputEnd:
    return output_growth.at_end(grown, data, 0, 5, at(END_S).timestamp())


N = len(STEPS)
EARLY = ((60, N, 40), (120, N, 40), (360, N, 40))


def test_an_output_without_times_that_no_longer_grew_is_a_finding() -> None:
    """Six steps in forty seconds, then nothing until the limit: since when, and the line before."""
    end = judged(looked(*EARLY), STEPS + SLURM)
    assert end.finding is not None
    assert end.finding["kind"] == vocabulary.OUTPUT_STALL
    assert end.finding["measured"] == pytest.approx(380)
    assert end.finding["detail"] == {"gap_s": 40.0, "n_writes": 1, "last_line": "step 5 loss 1.9"}
    assert end.finding["offset"] == N


def test_a_question_that_nobody_answers_has_no_line_end() -> None:
    """Slurm's message stands behind it in the same line."""
    prompt = b"Overwrite existing checkpoint? [y/N] "
    end = judged(looked((60, len(prompt), 3), (360, len(prompt), 3)), prompt + SLURM)
    assert end.finding is not None
    assert end.finding["detail"]["last_line"] == "Overwrite existing checkpoint? [y/N]"


@pytest.mark.parametrize(
    ("looks", "data"),
    [
        (EARLY, STEPS + b"step 6 loss 1.8\n" + SLURM),
        (((60, 17, 50), (120, 34, 110), (240, N, 230)), STEPS + SLURM),
        (((60, 0, 0), (200, N, 190)), STEPS + SLURM),
        ((), STEPS + SLURM),
        (EARLY, STEPS[:-4]),
    ],
    ids=["wrote after the last look", "writes every two minutes", "wrote late first", "never looked at", "truncated"],
)  # fmt: skip
def test_a_job_that_writes_on_or_always_writes_rarely_is_not_called_silent(looks: Any, data: bytes) -> None:
    """Its own earlier gaps are the measure, the wait for its first line too."""
    end = judged(looked(*looks), data)
    assert (end.finding, end.wrote_on) == (None, True)


@pytest.mark.parametrize(
    ("looks", "data"),
    [
        (((60, 0, 0), (360, 0, 0)), SLURM),
        (((60, 4096, 20), (360, 4096, 20)), b"x" * 4096 + SLURM),
    ],
    ids=["a silent program", "a full buffer"],
)
def test_what_a_buffer_may_hold_is_no_silence(looks: Any, data: bytes) -> None:
    """Nor does it show that the job went on."""
    end = judged(looked(*looks), data)
    assert (end.finding, end.wrote_on) == (None, False)


def test_what_the_program_answers_to_its_end_is_no_work() -> None:
    """A launcher that reports its SIGTERM: Slurm's message came first."""
    assert judged(looked(*EARLY), STEPS + SLURM + b"W0302 Received Signals.SIGTERM\n").finding is not None
    assert judged(looked(*EARLY), STEPS + b"W0302 Received\n" + SLURM).finding is None


def test_output_of_an_earlier_job_in_the_same_file_is_no_growth() -> None:
    """With --open-mode=append the file begins with another job's lines."""
    before = {"before": {"/out": [5, N, "mark"]}}
    end = judged(looked((60, N, -900), (360, N, -900), **before), STEPS + SLURM)
    assert end.finding is None


def test_a_file_servers_clock_does_not_date_the_silence() -> None:
    """An hour behind: the last write lies between the look before it and the look that found it."""
    grown = looked((60, 17, -3600), (120, N, -3540), (360, N, -3540))
    assert grown is not None
    assert grown["written_at"] == at(60).timestamp()


def test_one_file_that_went_on_speaks_for_its_job() -> None:
    """Standard error may be silent while the steps go on in another file."""
    stall = vocabulary.OUTPUT_STALL
    assert output_growth.is_contradicted(stall, [{"wrote_on": False}, {"wrote_on": True}])
    assert not output_growth.is_contradicted(stall, [{"wrote_on": False}, {"goes_on": True}])
    assert not output_growth.is_contradicted("python_traceback", [{"wrote_on": True}])


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    "row",
    [
        [NAN, 1, 1.0], [1, INFINITY, 1.0], [1, 1, NAN], [1, 1, -INFINITY], [1, 1, 10**400], [10**400, 1, 1.0], [-1, 1, 1.0], [1, -1, 1.0],
        [True, 1, 1.0], [1, 1.5, 1.0], [1, 1], [1, 1, 1.0, 1], ["1", 1, 1.0], {"0": 1}, None, "abc",
    ],
)  # fmt: skip
def test_a_forged_size_is_none(row: object) -> None:
    """The child that looks runs as the job's owner: JSON has room for numbers that end an agent."""
    assert output_growth.size_of(row) is None
    assert output_growth.size_of([5, 10, 1.5]) == (5, 10, 1.5)
    assert output_growth.before_of(row) is None
    assert output_growth.before_of([5, 10, "m" * 65]) is None
    assert output_growth.before_of([5, 10, "m" * 64]) == [5, 10, "m" * 64]
