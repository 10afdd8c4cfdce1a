"""Jobs that stood still, by the times of their own logs, until a person or the limit ended them: the fault of that minute, or nothing."""

from __future__ import annotations

import dataclasses
import zoneinfo
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import judge, onset, view_builder
from probing_cluster.control_plane.imports import joblog
from probing_cluster.core import records, vocabulary

START = datetime(2026, 5, 4, tzinfo=UTC)
END = START + timedelta(hours=6)
LAST = START + timedelta(hours=2)
"""The last step of the usual log."""
CANCELLED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-04T06:00:00 ***"
NVLINK = {"kind": "xid", "code": "74", "pci_bus_id": "0000:5d:00"}
PORT = {"kind": "ib_link", "device": "mlx5_0"}


def attempt(**over: Any) -> records.JobAttempt:
    """Eight GPUs of one node, cancelled by their user after six hours."""
    values: dict[str, Any] = {
        "cluster": "c", "job_id": 7, "submit_at": START, "start_at": START, "end_at": END, "nodes": ("n1",), "n_gpus": 8,
        "state": "CANCELLED", "user": "alice", "cancelled_by": "alice", "exit_code": 0, "exit_signal": 0,
    }  # fmt: skip
    return records.JobAttempt(**{**values, **over})


def event(after_last_s: float, node: str = "n1", **over: Any) -> records.HealthEvent:
    """A hard fault in a kernel log, so long after the last step."""
    at = LAST + timedelta(seconds=after_last_s)
    values: dict[str, Any] = {
        "code": None,
        "severity": records.Severity.HIGH,
        "source": "import",
        "message": "",
    }
    key = f"{node}:{after_last_s}:{sorted(over)}:{over.get('code')}"
    return records.HealthEvent(
        event_id=records.make_event_id("c", node, "import", key), cluster="c", node=node, at=at, observed_at=END,
        **{**values, **over},
    )  # fmt: skip


def step(number: int, at: datetime, zone: str = "UTC") -> str:
    return f"[{at.astimezone(zoneinfo.ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}] step {number} loss 1.97"


def steps(n: int = 6, apart_s: float = 20.0, zone: str = "UTC", last_at: datetime = LAST) -> list[str]:
    """Dated steps, the last of them at `last_at`."""
    return [step(100 + i, last_at - timedelta(seconds=apart_s * (n - 1 - i)), zone) for i in range(n)]


def findings(
    lines: Iterable[str], of: records.JobAttempt | None = None, zone: str | None = "UTC"
) -> list[records.HealthEvent]:
    known = zoneinfo.ZoneInfo(zone) if zone else None
    return joblog.read((f"{line}\n".encode() for line in lines), of or attempt(), END, known)


def stall(lines: Iterable[str], **over: Any) -> records.HealthEvent | None:
    """The finding that the log stood still."""
    return next((e for e in findings(lines, **over) if e.kind == vocabulary.LOG_STALL), None)


def verdict(
    lines: Iterable[str], *faults: records.HealthEvent, of: records.JobAttempt | None = None, **over: Any
) -> records.Verdict:
    """The verdict that an import of log, accounting and kernel logs leads to."""
    of = of or attempt()
    own = findings(lines, of, **over)
    watched = {n: END + timedelta(hours=1) for n in of.nodes}
    case = cases.Case(
        attempt=of, events=(*faults, *own), watched=watched, by_log=frozenset(of.nodes), by_whole_log=frozenset(of.nodes),
        last_progress_at=onset.last_progress(of, own),
    )  # fmt: skip
    made = judge.judge(case, made_at=END + timedelta(hours=2))
    assert made is not None
    return made


def test_a_link_between_gpus_that_failed_with_the_last_step_is_why_the_user_gave_up() -> None:
    """Likely, never certain; since when it stood, by which fault, and who ended it then."""
    made = verdict([*steps(), CANCELLED], event(9, **NVLINK))
    assert (made.cause, made.node, made.confidence) == ("gpu_nvlink", "n1", "likely")
    assert made.summary.startswith("Hung since 02:00:00Z, 4 h before the end: ")
    assert "Xid 74" in made.summary
    assert made.summary.endswith("; then the job was cancelled by its user (alice).")
    assert made.onset_at == LAST
    assert len(made.evidence) >= 2


def test_a_port_that_went_down_and_stayed_so_is_why_the_limit_came() -> None:
    """A log with steps left out is compared by how far its counter went: its longest silence held eighty steps of the usual pace."""
    of = attempt(state="TIMEOUT", cancelled_by=None, nodes=("n1", "n2"), n_gpus=16)
    early = [step(20 + i, LAST - timedelta(seconds=1700 - 20 * i)) for i in range(4)]
    made = verdict([*early, *steps(), CANCELLED], event(30, node="n2", code="port_down", **PORT), of=of)
    assert (made.cause, made.node, made.confidence) == ("ib_link", "n2", "likely")
    assert made.summary.endswith("; then the job reached its time limit.")


def test_a_switch_that_failed_with_the_last_step_of_a_log_in_the_sites_zone() -> None:
    """Times without a zone are read in the one that the import is given; without one they must begin with the job."""
    fault = event(4, kind="sxid", code="24007")
    lines = [*steps(zone="Asia/Tokyo"), CANCELLED.replace("T06", "T15")]
    assert verdict(lines, fault, zone="Asia/Tokyo").cause == "nvswitch"
    assert verdict(lines, fault, zone=None).cause == "user_cancelled"
    assert stall([*steps(), CANCELLED], zone=None) is None
    begun = step(1, START + timedelta(minutes=2))
    assert stall([begun, *steps(400), CANCELLED], zone=None) is None  # one gap of hours
    whole = steps(360, apart_s=19.9)
    assert stall([*whole, CANCELLED], zone=None) is not None
    zoned = [line.replace("] ", "Z] ") for line in steps()]
    assert stall([*zoned, CANCELLED], zone=None) is not None


@pytest.mark.parametrize(
    "faults",
    [
        [event(-600, **NVLINK)],
        [event(1800, **NVLINK)],
        [event(9, node="n2", **NVLINK)],
        [event(9, severity=records.Severity.LOW, **NVLINK)],
        [event(9, kind="mount", code="missing", device="/scratch"), event(700, kind="mount", code="returned", device="/scratch")],
        [event(9, **NVLINK), event(3000, kind="driver_load", severity=records.Severity.INFO)],
        [event(9, kind="xid", code="94", pci_bus_id="0000:5d:00")],
        [],
    ],
    ids=["steps went on", "long after", "another node", "low", "mounted again", "set up anew", "contained", "none"],
)  # fmt: skip
def test_without_a_lasting_fault_of_that_minute_it_was_cancelled(faults: list[records.HealthEvent]) -> None:
    """That it stood is evidence, and no cause."""
    made = verdict([*steps(), CANCELLED], *faults)
    assert made.cause == "user_cancelled"
    assert made.confidence != "certain"
    assert "its log shows no progress since 02:00:00Z, 4 h before the end" in made.summary
    own = findings([*steps(), CANCELLED])
    assert {e.event_id for e in own if e.kind == vocabulary.LOG_STALL} <= set(made.evidence)
    assert made.stalled_at == LAST
    assert made.next_step.startswith("Find out why it hung: ")


def test_the_limit_of_a_job_that_stood_still_asks_for_no_more_time() -> None:
    """It would have stood for longer; one whose log shows no standstill may need it."""
    of = attempt(state="TIMEOUT", cancelled_by=None)
    made = verdict([*steps(), CANCELLED], of=of)
    assert (made.cause, made.stalled_at) == ("time_limit", LAST)
    assert made.next_step.startswith("More time would most likely not have helped. Find out why it hung: ")
    at_work = verdict(["no times here", CANCELLED], of=of)
    assert (at_work.cause, at_work.stalled_at) == ("time_limit", None)
    assert at_work.next_step.startswith("Ask for more time")


def test_a_mount_that_stayed_away_is_why_it_stood() -> None:
    """The counterpart of the one that was mounted again."""
    made = verdict([*steps(), CANCELLED], event(9, kind="mount", code="missing", device="/scratch"))
    assert (made.cause, made.confidence) == ("filesystem_mount", "likely")


def test_a_dead_server_with_a_task_blocked_behind_it_stays_the_cause() -> None:
    """The times of the log move the window back over both, which are low: they count as they do before the window."""
    silent = event(20, kind="nfs", code="not_responding", device="home7", severity=records.Severity.LOW)
    blocked = event(
        150, kind="hung_task", severity=records.Severity.INFO, message="INFO: task python:77 blocked for more than 120 seconds."
    )  # fmt: skip
    made = verdict([*steps(), CANCELLED], silent, blocked)
    assert (made.cause, made.confidence) == ("filesystem_mount", "likely")


def test_on_a_shared_node_a_gpu_may_be_the_neighbours() -> None:
    """A job that holds two of eight GPUs, nobody knows which, is "possible" at most at one that failed as it began to stand still."""
    made = verdict([*steps(), CANCELLED], event(9, **NVLINK), of=attempt(n_gpus=2))
    assert (made.cause, made.confidence) == ("gpu_nvlink", "possible")
    later = verdict([*steps(), CANCELLED], event(1800, **NVLINK), of=attempt(n_gpus=2))
    assert later.cause == "user_cancelled"


def test_what_an_agent_read_counts_alike_where_somebody_ended_the_job() -> None:
    """It says so of every log that was silent when its node was released, half a minute later; of one that failed it is no evidence."""
    (own,) = [e for e in findings([*steps(), CANCELLED]) if e.kind == vocabulary.LOG_STALL]
    released_at = END + timedelta(seconds=30)
    agents = dataclasses.replace(own, at=released_at, measured=(own.measured or 0.0) + 30.0)
    fault, watched = event(9, **NVLINK), {"n1": END + timedelta(hours=1)}
    of = attempt()
    since = onset.last_progress(of, [agents])
    case = cases.Case(attempt=of, events=(fault, agents), watched=watched, last_progress_at=since)
    made = judge.judge(case, made_at=END)
    assert made is not None
    assert (made.cause, made.onset_at) == ("gpu_nvlink", LAST)
    assert agents.event_id in made.evidence
    failed = attempt(state="FAILED", exit_code=1)
    alone, beside = (
        judge.judge(cases.Case(attempt=failed, events=events, watched=watched), made_at=END)
        for events in ((fault,), (fault, agents))
    )
    assert alone == beside
    assert not view_builder.is_own(agents, attempt(state="FAILED"), cases.WindowPolicy())


def test_numbers_that_grow_in_words_that_no_list_has_are_steps() -> None:
    """Not if they fell in between."""
    indexed = [line.replace("step", "indexed").replace("loss 1.97", "passages") for line in steps()]
    made = verdict([*indexed, CANCELLED], event(9, **NVLINK))
    assert (made.cause, made.node, made.confidence) == ("gpu_nvlink", "n1", "likely")
    up_and_down = [line.replace("indexed 10", f"indexed {9 - i % 2}0") for i, line in enumerate(indexed)]
    assert stall([*up_and_down, CANCELLED]) is None


LONG = steps(300, apart_s=20.0)


@pytest.mark.parametrize(
    "lines",
    [
        [line.partition("] ")[2] for line in steps()],
        [line.replace("2026-05-04 ", "") for line in steps()],
        steps(1),
        steps(3, apart_s=3600),
        [*steps(), "step 400 loss 1.2"],
        [*steps()[:-1], steps()[-1][:25] + CANCELLED],
        [f"{line} {'x' * 60}" for line in steps(300, apart_s=300.0, last_at=END - timedelta(minutes=40))],
        [*steps(last_at=LAST + timedelta(hours=1)), *steps()],
        [*steps(), "All done. Waiting for uploads to finish"],
        [line.replace("loss", "of 105 loss") for line in steps()[:-1]] + [f"[{LAST:%Y-%m-%d %H:%M:%S}] step 105/105"],
        [*steps(), f"[{LAST + timedelta(hours=1):%Y-%m-%d %H:%M:%S}] waiting for rank 3"],
        [*steps(), *(f"warning of a library: line {n}" for n in "abcdefgh" * 10)],
        [*steps(), "Traceback (most recent call last):", '  File "t.py", line 3, in <module>', "KeyError: 'lr'"],
        steps(last_at=START + timedelta(hours=7)),
        steps(last_at=START - timedelta(hours=1)),
        steps(last_at=END - timedelta(minutes=4)),
    ],
    ids=[
        "no times", "no dates", "one step", "hours between steps", "steps without times", "cut off in a buffer", "a buffer holds as much",
        "out of order", "done", "last step", "it spoke on", "other work", "its own error", "after its end", "before its start", "short",
    ],
)  # fmt: skip
def test_a_log_that_does_not_show_it_gives_no_finding(lines: list[str]) -> None:
    """Nor does a fault of that minute become the cause then."""
    assert stall([*lines, CANCELLED]) is None
    assert verdict([*lines, CANCELLED], event(9, **NVLINK)).cause in ("user_cancelled", "user_error")


def test_a_job_that_ended_by_itself_did_not_stand() -> None:
    """Only who is ended from outside stood until then."""
    assert stall(steps(), of=attempt(state="FAILED", exit_code=1)) is None


LOST_PEER = "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"


@pytest.mark.parametrize(
    ("error", "error_after_s"),
    [(f"[{LAST + timedelta(minutes=30):%Y-%m-%d %H:%M:%S}] {LOST_PEER}", 1800), (LOST_PEER, 4 * 3600)],
    ids=["dated", "without a time: the end's"],
)
def test_a_job_that_failed_after_a_silence_stood_until_its_error(error, error_after_s) -> None:
    """The fault of the minute in which it fell silent counts, long before the end."""
    failed = attempt(state="FAILED", exit_code=1, cancelled_by=None)
    found = stall([*steps(), error], of=failed)
    assert found is not None
    assert (found.at - LAST).total_seconds() == error_after_s == found.measured
    assert found.detail[vocabulary.UNTIL_ERROR] is True
    made = verdict([*steps(), error], event(4, **NVLINK), of=failed)
    assert (made.cause, made.node) == ("gpu_nvlink", "n1")
    assert stall([*steps(), error]) is None, "who cancelled it did so behind the error"


def test_an_error_that_only_the_program_makes_began_no_earlier() -> None:
    failed = attempt(state="FAILED", exit_code=1, cancelled_by=None)
    assert stall([*steps(), "Traceback (most recent call last):", '  File "t.py", line 1', "KeyError: 'lr'"], of=failed) is None  # fmt: skip
    busy = f"[{LAST + timedelta(minutes=20):%Y-%m-%d %H:%M:%S}] saving"
    assert stall([*steps(), busy, LOST_PEER], of=failed) is None


def _clocks(first_at: datetime, n: int = 6, apart_s: float = 20.0) -> list[str]:
    return [
        f"{first_at + timedelta(seconds=apart_s * i):%H:%M:%S} step {100 + i} loss 1.97" for i in range(n)
    ]


def test_times_without_a_day_are_of_the_attempt_and_go_on_past_midnight() -> None:
    late = attempt(start_at=START + timedelta(hours=23, minutes=59), end_at=START + timedelta(hours=30))
    found = stall([*_clocks(START + timedelta(hours=23, minutes=59, seconds=10), apart_s=30.0)], of=late)
    assert found is not None
    assert found.at - timedelta(seconds=found.measured or 0) == START + timedelta(
        hours=24, minutes=1, seconds=40
    )


def test_times_that_count_from_the_start_or_stand_beside_dates_are_no_clock() -> None:
    counted = [f"00:0{i}:00 step {i} loss 1.9" for i in range(1, 6)]
    noon = attempt(start_at=START + timedelta(hours=12), end_at=START + timedelta(hours=20))
    assert stall(counted, of=noon) is None
    dated = stall([*counted, *steps()])
    assert dated is not None
    assert dated.measured == (END - LAST).total_seconds()


def test_glogs_days_are_read() -> None:
    lines = [f"I{LAST + timedelta(seconds=9 * i):%Y%m%d %H:%M:%S}.441215 1188213 m.py:88] step {i} loss 2.1" for i in range(6)]  # fmt: skip
    found = stall(lines)
    assert found is not None
    assert round((END - LAST).total_seconds() - (found.measured or 0)) == 45


@pytest.mark.parametrize("change", [str, lambda line: line.replace("] ", ",123] INFO ")])
def test_a_long_log_needs_a_silence_that_no_buffer_explains(change: Callable[[str], str]) -> None:
    """Eight KiB of its lines; Python's logging, known by its times, has none."""
    lines = [change(line) for line in LONG]
    found = stall([*lines, CANCELLED])
    assert found is not None
    assert (found.at, found.unit, found.source) == (END, "s", "joblog")
    assert found.measured == pytest.approx(4 * 3600.0, abs=1)
    assert found.detail["gap_s"] == 20.0
    soon = attempt(end_at=LAST + timedelta(minutes=30))
    assert (stall([*lines, CANCELLED], of=soon) is None) is (change is str)


def test_a_programs_own_watchdog_is_no_sign_of_work() -> None:
    """It writes on, with a date, that nothing moves; any other dated line says that the program went on with something."""
    at = LAST + timedelta(minutes=31)
    date = f"{at:%Y-%m-%d %H:%M:%S}"
    watch = [f"[hangwatch {date}] no progress for 1860 s, dumping stacks", "[hangwatch rank 0]     all_reduce (torch/distributed/distributed_c10d.py:2810)"]  # fmt: skip
    found = stall([*steps(), *watch, CANCELLED])
    assert found is not None
    assert found.at - timedelta(seconds=found.measured or 0) == LAST
    assert stall([*steps(), f"[{date}] writing plots", CANCELLED]) is None


@pytest.mark.parametrize(
    ("before_end_s", "state", "found"),
    [(3600, "TIMEOUT", False), (60, "TIMEOUT", False), (-5, "TIMEOUT", False), (7 * 3600, "TIMEOUT", False), (3600, "CANCELLED", False), (8000, "TIMEOUT", True)],
)  # fmt: skip
def test_the_files_own_time_dates_the_last_line_of_a_log_without_times(
    before_end_s: float, state: str, found: bool
) -> None:
    """Only a time within the run is the original's, and a quarter of the run is long: most copies are younger than the end."""
    lines = [b"step %d loss 1.9\n" % n for n in range(6)]
    written_at = END - timedelta(seconds=before_end_s)
    made = joblog.read(lines, attempt(state=state), END, written_at=written_at)
    stalls = [e for e in made if e.kind == vocabulary.OUTPUT_STALL]
    assert len(stalls) == found
    for stall in stalls:
        assert (stall.at, stall.measured) == (END, before_end_s)
        assert stall.detail == {"last_line": "step 5 loss 1.9"}


def test_an_imported_log_whose_steps_go_on_shows_when_the_last_one_was() -> None:
    """Half a minute before the end; a log that stood still has no such step."""
    last_at = END - timedelta(seconds=30)
    (found,) = findings(steps(last_at=last_at))
    assert (found.kind, found.at, found.measured) == (vocabulary.LOG_PROGRESS, last_at, 20.0)
    assert vocabulary.LOG_PROGRESS not in {e.kind for e in findings(steps())}
