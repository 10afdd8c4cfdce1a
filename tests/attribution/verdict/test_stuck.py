"""Jobs that hung behind a fault until a person or the limit ended them, and errors of a program beside a fault it outlived."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from probing_cluster.core import records

C = records.Confidence
HOURS = 3 * 3600.0


def _ended(make, state):
    start = make.end - timedelta(hours=6)
    by = {"cancelled_by": "7001"} if state == "CANCELLED" else {}
    return make.attempt(state=state, exit_code=0, nodes=("n2",), start_at=start, submit_at=start, **by)


def _blocked(make, task, before_end_s=HOURS - 180):
    return make.event(
        before_end_s, kind="hung_task", code="blocked", message=f"INFO: task {task}:77 blocked for more than 120 seconds."
    )  # fmt: skip


def _silent(make, **over):
    return make.event(HOURS, kind="nfs", code="not_responding", device="home7", **over)


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED"])
def test_a_program_blocked_behind_a_dead_server_until_the_end_waited_for_it(make, state):
    """Nothing says the server came back: who ended the job ended a wait."""
    v = make.judge(attempt=_ended(make, state), stalls=(_silent(make), _blocked(make, "python")))
    assert (v.cause, v.node, v.confidence) == ("filesystem_mount", "n2", C.LIKELY)


@pytest.mark.parametrize("task", ["df", "node_exporter", "kworker/u8:1"])
def test_a_daemon_blocked_on_a_dead_mount_says_nothing_of_the_job(make, task):
    """It hangs whether or not the job uses the mount."""
    v = make.judge(attempt=_ended(make, "TIMEOUT"), stalls=(_silent(make), _blocked(make, task)))
    assert v.cause == "time_limit"


def test_a_silent_server_without_a_blocked_task_ends_no_job(make):
    """The job may never have asked it; nor does a task that was blocked before, or steps that went on."""
    end = _ended(make, "TIMEOUT")
    assert make.judge(attempt=end, stalls=(_silent(make),)).cause == "time_limit"
    before = _blocked(make, "python", HOURS + 600)
    assert make.judge(attempt=end, stalls=(before, _silent(make))).cause == "time_limit"
    stalls = (_silent(make), _blocked(make, "python"))
    went_on = make.end - timedelta(minutes=2)
    assert make.judge(attempt=end, stalls=stalls, last_progress_at=went_on).cause == "time_limit"


@pytest.mark.parametrize(("times", "sure"), [((400, 380), C.CERTAIN), ((400, 380, 200, 190), C.LIKELY)])
def test_a_server_that_is_lost_again_and_again_until_the_limit_leaves_doubt_about_the_limit(
    make, times, sure
):
    """Each time Lustre reports the connection as restored, but the job's open write may never have ended."""
    codes = ("connection_lost", "recovered") * 2
    events = [
        make.event(t, kind="lustre", code=code, severity=records.Severity.INFO, node="n2")
        for t, code in zip(times, codes, strict=False)
    ]
    start = make.end - timedelta(seconds=1800)
    end = make.attempt(
        state="TIMEOUT", exit_code=0, nodes=("n2",), start_at=start, submit_at=start, time_limit_s=1800.0
    )
    v = make.judge(*events, attempt=end)
    assert (v.cause, v.confidence) == ("time_limit", sure)


def test_a_gsp_that_stays_silent_with_a_task_blocked_behind_it_is_why_the_user_gave_up(make):
    """Whoever waits for the driver then waits for ever; without the blocked task it may have been one slow answer."""
    silent, end = make.xid(119, 2, HOURS), _ended(make, "CANCELLED")
    v = make.judge(silent, attempt=end, stalls=(_blocked(make, "nvidia-smi"),))
    assert (v.cause, v.node, v.confidence) == ("gpu_gsp_timeout", "n2", C.LIKELY)
    assert make.judge(silent, attempt=end).cause == "user_cancelled"


def test_a_neighbours_gsp_is_not_the_jobs(make):
    """On a shared node the GPU may be another job's."""
    shared = {"n2": ((make.end - timedelta(hours=7), None),)}
    v = make.judge(
        make.xid(119, 2, HOURS),
        attempt=_ended(make, "CANCELLED"),
        stalls=(_blocked(make, "nvidia-smi"),),
        shared=shared,
    )
    assert v.cause == "user_cancelled"


def _error(make, message, **detail):
    values = {"role": "root", "domains": ["user_program"], "first_cause": True, **detail}
    return make.finding("python_exception", node="n2", message=message, detail=values)


def test_a_programs_own_error_is_not_certain_beside_a_fault_that_it_outlived(make):
    """The fault may have had a part in it; without the fault the verdict is certain."""
    start = make.end - timedelta(hours=6)
    attempt = make.attempt(nodes=("n2",), start_at=start, submit_at=start)
    error = "AttributeError: 'Model' object has no attribute 'heads'"
    assert make.judge(_error(make, error), attempt=attempt).confidence is C.CERTAIN
    v = make.judge(make.xid(119, 2, HOURS), _error(make, error), attempt=attempt)
    assert (v.cause, v.confidence) == ("user_error", C.LIKELY)


@pytest.mark.parametrize(
    ("how", "cause"), [("timed out", "filesystem_mount"), ("still trying", "user_error")]
)
def test_a_missing_file_is_the_servers_where_it_gave_errors(make, how, cause):
    """A soft mount's calls fail, a hard one's wait: what waits finds no file missing."""
    attempt = make.attempt(nodes=("n2",))
    silent = make.event(
        20, kind="nfs", code="not_responding", device="home7", message=f"nfs: server home7 not responding, {how}"
    )  # fmt: skip
    error = _error(
        make, "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/a.py'", exception="FileNotFoundError"
    )  # fmt: skip
    v = make.judge(silent, error, attempt=attempt)
    assert (v.cause, v.confidence) == (cause, C.LIKELY)


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED"])
def test_of_several_stalls_the_first_is_named_whatever_their_order(make, state):
    """The database gives them in any order; the verdict must not depend on it."""
    stalls = [_silent(make), *(_blocked(make, "nfsiod", before_end_s=HOURS - s) for s in (60, 600, 120))]
    end = _ended(make, state)
    made = {make.judge(attempt=end, stalls=order).evidence for order in itertools.permutations(stalls)}
    assert made == {(min(stalls, key=lambda e: (e.at, e.event_id)).event_id,)}


def _demand(make, action, before_end_s=HOURS - 90, gpu=2):
    detail = {"recovery_to": action}
    return make.xid(154, gpu, before_end_s, severity=records.Severity.LOW, detail=detail)


@pytest.mark.parametrize("action", ["Node Reboot Required", "GPU Reset Required"])
def test_a_silent_gsp_whose_gpu_the_driver_wants_reset_is_why_the_user_gave_up(make, action):
    """Hours later and without a blocked task: the GPU could not be used any more."""
    silent, end = make.xid(119, 2, HOURS), _ended(make, "CANCELLED")
    v = make.judge(silent, attempt=end, stalls=(_demand(make, action),))
    assert (v.cause, v.node, v.confidence) == ("gpu_gsp_timeout", "n2", C.LIKELY)


def test_a_demand_that_the_driver_took_back_or_made_of_another_gpu_says_nothing(make):
    """Its last word counts, of the GPU that fell silent."""
    silent, end = make.xid(119, 2, HOURS), _ended(make, "CANCELLED")
    wanted, other = _demand(make, "GPU Reset Required"), _demand(make, "GPU Reset Required", gpu=3)
    over = _demand(make, "None", HOURS - 600)
    assert (
        make.judge(silent, attempt=end, stalls=(_demand(make, ["GPU Reset Required"]),)).cause
        == "user_cancelled"
    )
    assert make.judge(silent, attempt=end, stalls=(wanted, over)).cause == "user_cancelled"
    assert make.judge(silent, attempt=end, stalls=(other,)).cause == "user_cancelled"


@pytest.mark.parametrize(
    ("attempt", "ran_min", "word"), [(1, 2, C.CERTAIN), (2, 2, C.LIKELY), (2, 40, C.CERTAIN)]
)
def test_an_error_soon_after_another_start_of_the_job_is_not_certain(make, attempt, ran_min, word):
    """It may have stumbled over what the one before left: a checkpoint half written, or none."""
    start = make.end - timedelta(minutes=ran_min)
    given = make.attempt(nodes=("n2",), start_at=start, submit_at=start, attempt=attempt)
    v = make.judge(_error(make, "KeyError: 'rng'"), attempt=given)
    assert (v.cause, v.confidence) == ("user_error", word)


@pytest.mark.parametrize(
    ("detail", "fault", "cause"),
    [
        ({"unanswered_ms": 1_800_000}, True, "gpu_gsp_timeout"),
        ({"unanswered_ms": 1_800_000}, False, "user_error"),
        ({}, True, "user_error"),
    ],
)
def test_a_wait_that_ends_in_an_exception_beside_a_gpu_that_does_not_answer(make, detail, fault, cause):
    """Ten minutes after the GPU fell silent the program gave up: an exception of another sort would be its own."""
    gave_up = make.finding("python_exception", node="n2", message="TimeoutError: worker 2", detail={"role": "root", "first_cause": True, "exception": "TimeoutError", **detail})  # fmt: skip
    faults = [make.xid(119, 2, 620, node="n2")] if fault else []
    v = make.judge(*faults, gave_up, attempt=make.attempt(nodes=("n2",)))
    assert v.cause == cause


@pytest.mark.parametrize(
    ("stood_s", "after_s", "back_s", "message", "cause"),
    [
        (7200.0, 15.0, None, "still trying", "filesystem_mount"),
        (7200.0, 15.0, -300.0, "still trying", "filesystem_mount"),
        (7200.0, 15.0, 6500.0, "still trying", "time_limit"),
        (540.0, 15.0, None, "still trying", "time_limit"),
        (7200.0, 900.0, None, "still trying", "time_limit"),
        (7200.0, 15.0, None, "timed out", "time_limit"),
    ],
    ids=["for good", "back after the end", "back before", "minutes only", "later", "whose calls fail"],
)
def test_a_server_that_fell_silent_with_the_log_stopped_a_job_that_never_went_on(
    make, stood_s, after_s, back_s, message, cause
):
    """Whatever its program is called. Other jobs' servers are often silent for a minute."""
    stalled = make.finding(
        "log_stall", 0.0, measured=stood_s, unit="s", detail={"before_s": 60.0, "gap_s": 60.0}
    )
    silent = make.event(
        stood_s - after_s,
        kind="nfs",
        code="not_responding",
        device="home7",
        severity=records.Severity.INFO,
        message=f"nfs: server home7 not responding, {message}",
    )
    back = [] if back_s is None else [make.event(back_s, kind="nfs", code="recovered", device="home7", severity=records.Severity.INFO)]  # fmt: skip
    at = make.end - timedelta(seconds=stood_s)
    v = make.judge(silent, stalled, *back, attempt=_ended(make, "TIMEOUT"), last_progress_at=at)
    assert v.cause == cause
    if cause == "filesystem_mount":
        assert (v.node, v.confidence) == ("n2", C.LIKELY)


@pytest.mark.parametrize("back", [False, True])
def test_a_mount_that_was_silent_at_the_limit_comes_before_more_time(make, back):
    """A minute of silence proves no hang; whoever only asks for more time waits for the same mount again."""
    hangs = make.event(60, kind="mount", code="hanging", device="/scratch", node="n2", source="mount")
    again = make.event(
        30, kind="mount", code="recovered", device="/scratch", node="n2", source="mount", severity=records.Severity.INFO
    )  # fmt: skip
    v = make.judge(hangs, *([again] if back else []), attempt=make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=1100.0))  # fmt: skip
    assert v.cause == "time_limit"
    assert (
        "mount hanging (/scratch) on n2 60 s before, and no line reports its end" in v.summary
    ) is not back
    assert v.next_step.startswith("More time would not help if it waited for /scratch") is not back
    assert (v.confidence is C.CERTAIN) is back
    went_on = make.judge(hangs, attempt=make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=1100.0), last_progress_at=make.end - timedelta(seconds=2))  # fmt: skip
    assert "mount hanging" not in went_on.summary
    assert not went_on.next_step.startswith("More time would not help")
    brief = make.event(-5, kind="mount", code="recovered", device="/scratch", node="n2", source="mount", severity=records.Severity.INFO)  # fmt: skip
    soon = make.judge(hangs, brief, attempt=make.attempt(state="TIMEOUT", exit_code=0, time_limit_s=1100.0))
    assert "no line reports its end" not in soon.summary, "a line does, five seconds after the limit"
    long = make.attempt(state="TIMEOUT", exit_code=0, start_at=make.end - timedelta(hours=6), time_limit_s=21600.0)  # fmt: skip
    assert "mount hanging" not in make.judge(hangs, attempt=long).summary, "a minute of six hours"


@pytest.mark.parametrize("over", [{"state": "TIMEOUT", "exit_code": 0, "time_limit_s": 1100.0}, {"state": "CANCELLED", "cancelled_by": "alice"}])  # fmt: skip
def test_a_task_that_waited_in_the_last_minutes_is_named_beside_a_limit(make, over):
    """One from before the window is a stall; in the window it says no less."""
    message = "INFO: task python3:5151 blocked for more than 120 seconds."
    task = make.event(60, kind="hung_task", severity=records.Severity.LOW, node="n2", message=message)
    v = make.judge(task, attempt=make.attempt(**over))
    assert v.confidence is C.LIKELY
    assert "hung task on n2 60 s before, and no line reports its end" in v.summary
    assert (
        v.next_step == "Find out whether it hung: look at hung task on n2, and at the last lines of its log."
    )
    went_on = make.judge(task, attempt=make.attempt(**over), last_progress_at=make.end - timedelta(seconds=2))
    assert went_on.confidence is C.CERTAIN, "some task of the node waited, and the job did not"
    before = make.event(-5, kind="hung_task", severity=records.Severity.LOW, node="n2", message=message)
    assert make.judge(before, attempt=make.attempt(**over)).confidence is C.CERTAIN


@pytest.mark.parametrize(
    "beside",
    [
        lambda make: make.finding("python_exception", 7200.0, message="ValueError: x", detail={"first_cause": True, "role": "root", "exception": "ValueError"}),
        lambda make: make.finding("collective_mismatch", 7000.0, message="Detected mismatch between collectives", detail={"first_cause": True}),
        lambda make: make.event(7190.0, kind="xid", code="79", pci_bus_id="0000:9b:00", source="kernel"),
        lambda make: make.event(7100.0, kind="nfs", code="recovered", device="home7.cluster", severity=records.Severity.INFO),
        lambda make: make.finding("output_stall", 0.0, message="Overwrite? [y/N]", measured=7200.0, detail={"last_line": "Overwrite? [y/N]"}),
    ],
    ids=["an exception", "a mismatch", "a lost GPU", "an answer by another name", "a question"],
)  # fmt: skip
def test_a_silent_server_explains_no_standstill_that_something_else_does(make, beside):
    """One line of the kernel about a server is no more than it says."""
    stalled = make.finding("log_stall", 0.0, measured=7200.0, unit="s", detail={"before_s": 60.0, "gap_s": 60.0})  # fmt: skip
    silent = make.event(7185.0, kind="nfs", code="not_responding", device="home7", severity=records.Severity.INFO, message="nfs: server home7 not responding, still trying")  # fmt: skip
    at = make.end - timedelta(seconds=7200)
    given = {"attempt": _ended(make, "TIMEOUT"), "last_progress_at": at}
    v, alone = make.judge(silent, stalled, beside(make), **given), make.judge(stalled, beside(make), **given)
    assert v.cause == alone.cause != "filesystem_mount"
    assert v.confidence is alone.confidence or v.cause == "time_limit", "no other proof is less sure for it"
