"""A part that works again after a job's end saved no dead job; one that came back while it went on did."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.core import records, vocabulary

C = records.Confidence
INFO = records.Severity.INFO


def peers(make):
    """`remote process exited or there was a network error`: the gang lost somebody."""
    detail = {"first_cause": True, "role": "remote", "rank": 0}
    text = "NCCL error in: ProcessGroupNCCL.cpp:1691, remote process exited or there was a network error, NCCL version 2.20.5"
    return make.finding("nccl_remote_error", message=text, detail=detail)


def link(make, before_s, **over):
    """A port as the kernel, the readings or the check name it."""
    values = {"kind": "ib_link", "code": "link_down", "device": "ib1", "pci_bus_id": "0000:40:00.0"}
    return make.event(before_s, **{**values, **over})


def reading(make, before_s, **over):
    """The agent's reading of it."""
    return link(make, before_s, **{"device": "mlx5_1", "code": "down", "source": "sysfs", **over})


def up(make, before_s, **over):
    """The reading that finds it up."""
    return reading(make, before_s, severity=INFO, detail={"recovered": True}, **over)


@pytest.mark.parametrize("after_s", [1, 5, 13, 60])
@pytest.mark.parametrize("down_s", [4, 10, 25, 45])
@pytest.mark.parametrize("why", [(), (peers,)], ids=["exit code", "lost peer"])
def test_a_link_that_was_down_at_the_end_keeps_its_verdict_when_it_comes_up_after_it(
    make, after_s, down_s, why
):
    """The same job, with its port up a moment after its death, or not."""
    down = (link(make, down_s), reading(make, down_s - 1), *(w(make) for w in why))
    alone, back = make.judge(*down), make.judge(*down, up(make, -after_s))
    assert (alone.cause, alone.confidence, alone.summary) == (back.cause, back.confidence, back.summary)
    assert alone.cause == "ib_link"
    assert alone.confidence in (C.LIKELY, C.CERTAIN)


@pytest.mark.parametrize(
    ("down_s", "up_s", "convicts"),
    [(40, 30, False), (20, 10, False), (5, 3, False), (20, 2, True), (20, -1, True)],
)
def test_a_flap_that_the_job_outlived_weighs_less(make, down_s, up_s, convicts):
    """It went on for as long as the port was away, or for some seconds; one that dies as the port comes up was dying."""
    found = make.judge(link(make, down_s), reading(make, down_s), up(make, up_s))
    assert (found.cause == "ib_link") is convicts


def test_the_log_dates_the_death_where_a_launcher_ends_the_others_later(make):
    """The port came up between the error and the end of the last task."""
    down, back = link(make, 40), up(make, 20)
    detail = {"first_cause": True, "role": "root", "at_from_log": True}
    error = make.finding("nccl_remote_error", 30, message="NCCL error: remote error", detail=detail)
    assert make.judge(down, error, back).cause == "ib_link"
    later = make.finding("nccl_remote_error", 2, message="NCCL error: remote error", detail=detail)
    assert make.judge(down, later, back).cause != "ib_link"


def test_a_port_found_down_by_the_first_reading_after_the_end_was_down_before(make):
    """Unless the kernel dates it to after the end."""
    late = reading(make, -8)
    alone, back = make.judge(late), make.judge(late, up(make, -18))
    assert (alone.cause, alone.confidence) == (back.cause, back.confidence)
    assert alone.cause == "ib_link"
    dated = link(make, -5, device="mlx5_1")
    assert make.judge(late, dated, up(make, -18)).cause == "user_error"


FAULTS = [
    {"kind": "xid", "code": "79", "device": "gpu3"},
    {"kind": "gpu_lost", "code": "GPU_IS_LOST", "source": "nvml", "device": "gpu3"},
    {"kind": "nvlink", "code": "inactive", "source": "nvml", "device": "gpu3"},
    {"kind": "mount", "code": "missing", "source": "mount", "device": "/scratch"},
    {"kind": "mount", "code": "hanging", "source": "mount", "device": "/scratch"},
    {"kind": "mount", "code": "read_only", "source": "mount", "device": "/scratch"},
    {"kind": "nfs", "code": "not_responding", "device": "stor9"},
    {"kind": "ib_link", "code": "down", "source": "sysfs", "device": "mlx5_0"},
    {"kind": "check", "code": "ib_link", "source": "check", "device": "mlx5_0"},
    {"kind": "eth_link", "code": "link_down", "device": "eth0"},
    {"kind": "pcie_link", "code": "down", "device": "0000:50:00.0"},
    {"kind": "thermal", "code": "critical", "device": "cpu0"},
    {"kind": "service", "code": "down", "source": "agent", "device": "munged"},
    {"kind": "driver", "code": "init_failed", "device": "gpu3"},
    {"kind": "edac", "code": "UE", "source": "ipmi", "device": "DIMM_A1"},
]
# A reading finds a part gone that was gone before; a line of the kernel dates its fault.
TIMES = [
    (fault, before_s, after_s)
    for fault in FAULTS
    for before_s in (20, 100, -8)
    for after_s in (1, 10, 60)
    if before_s > 0 or (fault.get("source") in vocabulary.POLLED_SOURCES and after_s > -before_s)
]


@pytest.mark.parametrize(("fault", "before_s", "after_s"), TIMES)
@pytest.mark.parametrize(
    "end", [{}, {"state": "CANCELLED", "cancelled_by": "alice"}], ids=["failed", "ended"]
)
def test_no_part_that_works_again_after_the_end_changes_the_verdict(make, fault, before_s, after_s, end):
    """Whatever the part, however it was found, and whoever ended the job."""
    found = make.event(before_s, **fault)
    info = {"severity": INFO, "detail": {"recovered": True}}
    back = make.event(-after_s, **{**fault, **info})
    attempt = make.attempt(work_dir="/scratch/alice", **end)
    alone, again = make.judge(found, attempt=attempt), make.judge(found, back, attempt=attempt)
    assert (again.cause, again.confidence, again.summary) == (alone.cause, alone.confidence, alone.summary)


@pytest.mark.parametrize("kind", ["nfs", "mount"])
def test_a_mount_that_came_back_while_the_job_went_on_weighs_less(make, kind):
    """As the same mount, away for longer than the job lived, does not."""
    fault = {"kind": kind, "code": "not_responding" if kind == "nfs" else "missing", "device": "/scratch"}
    attempt = make.attempt(work_dir="/home/alice")
    down = make.event(90, **fault)
    back = make.event(60, **{**fault, "code": "recovered"}, severity=INFO, detail={"recovered": True})
    assert make.judge(down, attempt=attempt).cause == "filesystem_mount"
    assert make.judge(down, back, attempt=attempt).cause == "user_error"


@pytest.mark.parametrize(("before_s", "after_s"), [(2, 3), (60, 1), (60, 50), (-1, 5)])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "nfs", "code": "not_responding", "device": "home7", "message": "nfs: server home7 not responding, still trying"},
        {"kind": "lustre", "code": "connection_lost", "device": "scratch-OST001c"},
    ],
    ids=["nfs", "lustre"],
)  # fmt: skip
def test_a_server_that_was_silent_for_a_moment_failed_no_call_of_a_dead_job(make, fault, before_s, after_s):
    """Whoever uses it waits; the job died of something else while it did."""
    fault = {**fault, "severity": INFO}
    back = make.event(-after_s, **{**fault, "code": "recovered", "message": ""}, detail={"recovered": True})
    for attempt in (make.attempt(), make.attempt(exit_code=139)):
        v = make.judge(make.event(before_s, **fault), back, attempt=attempt)
        assert v.cause == make.judge(attempt=attempt).cause


def test_a_port_that_was_back_in_the_last_seconds_gives_way_to_other_proof(make):
    """The job did not go on for long enough to have outlived it for sure, and its own GPU error says more."""
    down = (link(make, 20), reading(make, 20), up(make, 2))
    assert make.judge(*down).cause == "ib_link"
    assert make.judge(*down, make.xid(13, gpu=3, before_end_s=2)).cause == "user_error"
    assert make.judge(*down, peers(make)).confidence in (C.LIKELY, C.CERTAIN)


def test_an_error_from_before_a_fault_is_not_when_the_job_died_of_it(make):
    """The port came back while the job went on."""
    detail = {"first_cause": True, "role": "root", "at_from_log": True}
    early = make.finding("nccl_remote_error", 600, message="NCCL error: remote error", detail=detail)
    assert make.judge(link(make, 60), early, up(make, 30)).cause != "ib_link"
    before = make.finding("nccl_remote_error", 50, message="NCCL error: remote error", detail=detail)
    assert make.judge(link(make, 40), before, up(make, 20)).cause != "ib_link", "it came before the fault"


def test_no_sentence_denies_a_fault_that_was_there(make):
    """A port that had come up while the job went on did not end it for sure, and is named all the same."""
    lost, down, back = peers(make), reading(make, 40), up(make, 12)
    found = make.judge(lost, down, back)
    assert found.cause == "unknown"
    assert "nothing seen" not in found.summary
    assert "does not suffice to explain the end; the likeliest is" in found.summary
    assert "mlx5_1 of n2) 40 s before it" in found.summary
    assert "nothing seen on n[1-2] explains the end" in make.judge(lost).summary
    long_ago = reading(make, 400), up(make, 390)
    assert "nothing seen on n[1-2] explains the end" in make.judge(lost, *long_ago).summary
    assert make.end - timedelta(seconds=400) == long_ago[0].at
