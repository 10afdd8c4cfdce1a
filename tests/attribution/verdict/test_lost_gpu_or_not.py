"""A GPU lost earlier, beside jobs that may not have needed it; a daemon that the kernel killed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from probing_cluster.core import records, vocabulary

C = records.Confidence


def _lost(make, before_end_s):
    """A lost GPU that only its address names, as an imported log has it."""
    event = make.xid(79, None, before_end_s, node="n1", pci_bus_id="0000:5d:00", source="import")
    return dataclasses.replace(event, job_id=None)


def _judge(make, before_end_s, **over):
    values = {"nodes": ("n1",), "gpus": None, "n_gpus": 8, **over}
    return make.judge(active_faults=(_lost(make, before_end_s),), attempt=make.attempt(**values))


@pytest.mark.parametrize("minutes", [25, 60, 600])
def test_a_job_not_known_to_have_wanted_gpus_did_not_die_of_one_lost_before(make, minutes):
    """It exited with a code of its own; with all the GPUs of its node it is the GPU's."""
    before_end_s = (make.end - make.start + timedelta(minutes=minutes)).total_seconds()
    assert _judge(make, before_end_s, n_gpus=None, exit_code=3).cause == "user_error"
    assert _judge(make, before_end_s).cause == "gpu_lost"


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED"])
@pytest.mark.parametrize(("n_gpus", "lost"), [(1, False), (2, False), (4, True), (8, True)])
def test_who_has_a_few_of_the_nodes_gpus_may_have_reached_its_end_without_the_lost_one(
    make, state, n_gpus, lost
):
    """With the whole node it could not have gone on; neither is ever certain."""
    verdict = _judge(make, 1000.0, n_gpus=n_gpus, state=state, exit_code=0)
    assert (verdict.cause == "gpu_lost") is lost
    assert verdict.confidence is not C.CERTAIN


@pytest.mark.parametrize(("process", "cause"), [("slurmd", "system_services"), ("munged", "system_services"), ("python", "node_lost")])  # fmt: skip
def test_slurms_own_daemon_killed_for_want_of_memory_is_why_the_node_was_given_up(make, process, cause):
    """Any other process leaves open why the node stopped answering."""
    killed = make.event(
        240.0, kind="oom", code="global", severity=records.Severity.INFO, process=process, node="n1"
    )
    attempt = make.attempt(nodes=("n1",), state="NODE_FAIL", exit_code=0)
    verdict = make.judge(killed, attempt=attempt, watched={}, by_log=frozenset())
    assert (verdict.cause, verdict.node) == (cause, "n1")
    assert verdict.confidence is not C.CERTAIN


def _went_on(make, until_s=0.0, gap_s=1.0):
    """Dated steps of the job's log, the last of them so many seconds before its end."""
    return make.finding(
        vocabulary.LOG_PROGRESS, until_s, measured=gap_s, unit="s", message="progress until: step 60"
    )


def _lost_while_running(make, before_end_s):
    """A GPU that all sources find lost, under a job that holds the node's GPUs."""
    gpu = {"device": "gpu1", "gpu_uuid": make.uuid("n2", 1)}
    return (
        make.xid(79, 1, before_end_s),
        make.event(before_end_s - 1, kind="gpu_lost", code="GPU_IS_LOST", source="nvml", **gpu),
        make.event(before_end_s - 3, kind="check", code="gpu_count", source="check", **gpu),
    )


@pytest.mark.parametrize("before_end_s", [53, 1500])
def test_a_job_that_worked_on_after_the_loss_did_not_end_by_it(make, before_end_s):
    """Its log shows steps until its end; without them the lost GPU ended it, however long before."""
    lost = _lost_while_running(make, before_end_s)
    over = {"attempt": make.attempt(start_at=make.end - timedelta(hours=2)), "active_faults": lost[:1]}
    # The check of the kernel log lists the same Xid.
    listed = make.event(
        before_end_s - 3,
        kind="check",
        code="gpu_xid",
        source="check",
        device="gpu1",
        gpu_uuid=make.uuid("n2", 1),
    )
    early_stop = make.judge(*lost, listed, _went_on(make), **over)
    assert early_stop.cause == "user_error"
    assert "less likely: GPU 1 of n2 (Xid 79, but the job's log shows that it worked on)" in early_stop.ruled_out  # fmt: skip
    assert "GPUs (no fault that ends a job on the ones it held)" not in early_stop.ruled_out
    died = make.judge(*lost, **over)
    assert (died.cause, died.confidence) in [("gpu_lost", C.LIKELY), ("gpu_lost", C.CERTAIN)]


def test_a_loss_that_was_reported_again_after_the_last_steps_is_not_outlived(make):
    """The kernel log's lines on it are one event, from the first to the last."""
    lost = make.xid(79, 1, 53)
    again = dataclasses.replace(lost, count=2, last_at=make.end - timedelta(seconds=5))
    assert make.judge(lost, _went_on(make)).cause == "user_error"
    assert make.judge(again, _went_on(make)).cause == "gpu_lost"


def test_a_jobs_first_steps_prove_nothing_of_a_gpu_that_was_lost_before_it(make):
    """A program that runs ahead of its GPUs begins only with the job."""
    before_s = (make.end - make.start).total_seconds()
    lost, attempt = _lost(make, before_s + 400), make.attempt(nodes=("n1",), gpus=None, n_gpus=8)
    early, late = (
        make.judge(_went_on(make, until_s), active_faults=(lost,), attempt=attempt)
        for until_s in (before_s - 5, 0)
    )
    assert (early.cause, late.cause) == ("gpu_lost", "user_error")


def test_a_cancellation_long_after_the_loss_is_the_owners(make):
    """Never certain beside a lost GPU."""
    cancelled = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice")
    v = make.judge(*_lost_while_running(make, 47), _went_on(make), attempt=cancelled)
    assert (v.cause, v.confidence) == ("user_cancelled", C.LIKELY)
    assert make.judge(*_lost_while_running(make, 47), attempt=cancelled).cause == "gpu_lost"


@pytest.mark.parametrize(("until_s", "gap_s"), [(40.0, 1.0), (0.0, 25.0)])
def test_a_few_steps_after_the_loss_prove_nothing(make, until_s, gap_s):
    """A program runs ahead of its GPUs: steps that were on their way may end."""
    v = make.judge(*_lost_while_running(make, 47), _went_on(make, until_s, gap_s))
    assert v.cause == "gpu_lost"


@pytest.mark.parametrize(("code", "cause"), [(119, "gpu_gsp_timeout"), (48, "gpu_memory_uncorrectable")])
def test_the_steps_of_other_tasks_excuse_no_other_fault(make, code, cause):
    """The driver ends the task that met it; the job's other tasks work on, and all write into one log."""
    fault = make.xid(code, 1, 120)
    assert make.judge(fault, _went_on(make)).cause == make.judge(fault).cause == cause


def test_a_rank_that_names_the_lost_gpu_felt_it(make):
    """The steps were those of the other ranks."""
    named = make.finding("gpu_lost", 1.0, node="n2", message="CUDA error: GPU is lost")
    v = make.judge(*_lost_while_running(make, 53), _went_on(make), named)
    assert (v.cause, v.node) == ("gpu_lost", "n2")


def test_that_a_job_was_at_work_is_no_finding_about_its_end(make):
    """The verdict is that of a log without findings."""
    v = make.judge(_went_on(make), attempt=make.attempt(exit_code=17))
    assert v == dataclasses.replace(make.judge(attempt=make.attempt(exit_code=17)))
    assert make.judge(make.xid(48, before_end_s=4.0), _went_on(make, 2.0)).cause == "gpu_memory_uncorrectable"
