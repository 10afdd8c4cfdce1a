"""A log's lines are judged within a time and little memory, and what was left out is counted."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.core import vocabulary
from probing_cluster.probe_agent.jobs import collect_words, log_parts

FIRST = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nKeyError: "lr"\n'
LAST = 'Traceback (most recent call last):\n  File "b.py", line 2, in <module>\nValueError: bad shape\n'


def time_for(n_lines: int) -> collect_words.ReadingTime:
    """A time in which so many lines can be judged: its clock is read once a line."""
    ticks = itertools.count()
    return collect_words.ReadingTime(float(n_lines), lambda: float(next(ticks)))


def read(text: str, n_lines: int) -> collect_words.LogWords:
    part = log_parts.LogPart(0, text.encode(), is_first=True)
    return collect_words.read_log([part], reading=time_for(n_lines))


def messages(found: collect_words.LogWords) -> str:
    return " ".join(row["message"] for row in found.findings)


def test_where_the_time_does_not_suffice_the_middle_is_left_out() -> None:
    """The first error and the end are what a verdict needs; the bytes between are counted, not passed over in silence."""
    middle = "".join(f"[rank{n}] waits for the other ranks of its group\n" for n in range(2_500))
    text = FIRST + middle + LAST
    found = read(text, 250)
    assert "KeyError" in messages(found)
    assert "ValueError" in messages(found)
    assert 0.8 * len(text) < found.n_unread_bytes < len(text)
    for row in found.findings:
        assert text.encode()[row["offset"] :].startswith((b"Traceback", b"KeyError", b"ValueError"))
    assert read(text, 7_500).n_unread_bytes == 0


def test_an_end_that_is_slower_than_the_rest_is_cut_and_counted() -> None:
    """Short lines at the end of long ones: the pace of the first half does not hold, and the deadline does."""
    text = FIRST + "a long line of a training program that runs\n" * 50 + "ab\ncd\n" * 5000 + LAST
    found = read(text, 100)
    assert "KeyError" in messages(found)
    assert "ValueError" not in messages(found)
    assert found.n_unread_bytes > 0.9 * len(text)


@pytest.mark.parametrize(("n_lines", "stood"), [(1000, True), (60, False)])
def test_steps_whose_end_was_not_read_did_not_stand_still(n_lines: int, *, stood: bool) -> None:
    """The time is over in the middle of the log: whether there are later steps is not known."""
    start_at = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
    steps = (
        (start_at + timedelta(seconds=20 * n)).astimezone() for n in range(350)
    )  # as a program writes it
    text = "".join(f"[{at:%Y-%m-%d %H:%M:%S},123] INFO step {n} loss 1.97\n" for n, at in enumerate(steps))
    ticks = itertools.count()
    found = collect_words.read_log(
        [log_parts.LogPart(0, text.encode(), is_first=True)],
        span=(start_at, start_at + timedelta(hours=8)),
        reading=collect_words.ReadingTime(1.0, lambda: 0.0 if next(ticks) < n_lines else 2.0),
    )
    assert (vocabulary.LOG_STALL in {row["kind"] for row in found.findings}) is stood
    assert (found.n_unread_bytes == 0) is stood


def test_empty_lines_cost_little_memory() -> None:
    """The reader has 1 GiB, of which four million lines once took half."""
    part = log_parts.LogPart(0, b"\n" * 250_000, is_first=True)
    tracemalloc.start()
    collect_words.read_log([part])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 24 * 250_000


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A node where 2026-11-01 01:00 to 02:00 comes twice: from 05:00 and from 06:00 UTC."""
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(clock_time: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-01T{clock_time}:00+00:00")


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("began", "released", "written", "is_own"),
    [
        # The attempt begins in the first 01:40. An earlier one ended at 01:38; its own end is in the second 01:20.
        ("05:40", "06:21", "01:38", False),
        ("05:40", "06:21", "01:20", True),
        # It begins in the second 01:10: an earlier one ended in the first 01:50; its own end is the second 01:50.
        ("06:10", "08:00", "01:50", False),
        ("06:10", "06:51", "01:50", True),
        # Both in the same pass, and outside of the hour.
        ("06:10", "06:51", "01:05", False),
        ("05:10", "05:51", "01:50", True),
        ("05:10", "09:51", "04:50", True),
        ("05:10", "09:51", "00:50", False),
        # It still runs: the message cannot be about its end.
        ("06:10", None, "01:50", False),
        ("05:40", None, "01:38", False),
    ],
)
def test_in_the_hour_that_comes_twice_an_end_is_that_of_the_attempt_it_fits(
    began: str, released: str | None, written: str, *, is_own: bool
) -> None:
    """Slurm writes local time without a zone; what stands before an earlier attempt's end is not this one's."""
    text = f"{FIRST}slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-01T{written}:00 DUE TO PREEMPTION ***\n"
    span = (utc(began), utc(released)) if released is not None else None
    part = log_parts.LogPart(0, text.encode(), is_first=True)
    found = collect_words.read_log([part], utc(began), span)
    assert ("KeyError" in messages(found)) is is_own


@pytest.mark.usefixtures("new_york")
def test_a_standstill_ends_at_the_instant_that_slurm_means() -> None:
    """An hour is not added to it, nor taken off, in the second pass of the repeated hour."""
    start_at = utc("00:00")
    steps = ((start_at + timedelta(seconds=20 * n)).astimezone() for n in range(350))
    text = "".join(f"[{at:%Y-%m-%d %H:%M:%S},123] INFO step {n} loss 1.97\n" for n, at in enumerate(steps))
    text += "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-01T01:50:00 ***\n"
    part = log_parts.LogPart(0, text.encode(), is_first=True)
    for released, ended in (("06:51", "06:50"), ("05:52", "05:50")):
        found = collect_words.read_log([part], span=(start_at, utc(released)))
        (stall,) = [row for row in found.findings if row["kind"] == vocabulary.LOG_STALL]
        assert stall["at_s"] == utc(ended).timestamp()


@pytest.mark.parametrize(
    "step",
    [
        lambda n, at: f"{at:%Y-%m-%d %H:%M:%S} step {n} loss 0.3",
        lambda n, at: f"step {n} loss 0.3 {at:%H:%M:%S}",
        lambda n, at: f"[{at:%H:%M:%S}] step {n} loss 0.3",
    ],
    ids=["date", "clock behind", "clock"],
)
@pytest.mark.parametrize("silent_s", [0, 1200])
def test_steps_that_go_on_until_the_end_are_a_finding(
    step: Callable[[int, datetime], str], silent_s: int
) -> None:
    """The last one's time, as the program writes it; a job that was silent for long was perhaps at work in another zone."""
    start_at = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
    times = [start_at + timedelta(seconds=n) for n in range(60)]
    text = "".join(f"{step(n, at.astimezone())}\n" for n, at in enumerate(times))
    part = log_parts.LogPart(0, f"{text}early stopping: patience exhausted\n".encode(), is_first=True)
    end_at = times[-1] + timedelta(seconds=1 + silent_s)
    found = collect_words.read_log([part], span=(start_at, end_at))
    rows = [row for row in found.findings if row["kind"] == vocabulary.LOG_PROGRESS]
    assert [row["at_s"] for row in rows] == ([] if silent_s else [times[-1].timestamp()])
    assert all(row["measured"] == 1.0 and "step 59" in row["message"] for row in rows)


@pytest.mark.parametrize(
    "lines", [["step 1 loss 0.3", "step 2 loss 0.2"], ["2026-01-31 08:00:59 saved", "no steps"], []]
)
def test_without_dated_steps_nothing_shows_that_a_job_went_on(lines: list[str]) -> None:
    """Steps without times may all have been printed before the fault."""
    start_at = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
    part = log_parts.LogPart(0, "".join(f"{line}\n" for line in lines).encode(), is_first=True)
    found = collect_words.read_log([part], span=(start_at, start_at + timedelta(minutes=1)))
    assert vocabulary.LOG_PROGRESS not in {row["kind"] for row in found.findings}


def test_a_step_of_an_earlier_job_in_the_same_file_is_no_pace_of_this_one() -> None:
    """With one step of its own nothing shows how long its steps take."""
    start_at = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)
    times = [start_at - timedelta(hours=3), start_at + timedelta(seconds=9)]
    text = "".join(f"{at.astimezone():%Y-%m-%d %H:%M:%S} epoch {n}\n" for n, at in enumerate(times, 1))
    part = log_parts.LogPart(0, text.encode(), is_first=True)
    found = collect_words.read_log([part], span=(start_at, start_at + timedelta(minutes=10)))
    assert vocabulary.LOG_PROGRESS not in {row["kind"] for row in found.findings}
