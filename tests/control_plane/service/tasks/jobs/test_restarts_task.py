"""Ended attempts in a real database and a queue in memory: a row each, one restart, and the same end wherever the service dies."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import pytest
import sqlalchemy as sa

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.policy import restart_acts
from probing_cluster.control_plane.service import kept_logs, turns
from probing_cluster.control_plane.service.tasks.jobs import exclusions, restarts
from probing_cluster.core import records
from probing_cluster.db import bulk

START, END = fakes.NOW - timedelta(minutes=10), fakes.NOW - timedelta(seconds=20)
SUBMIT = START - timedelta(minutes=1)


def died(
    service: context.Context, slurm: fakes.FakeSlurm, job_id: int = 7, source: str = "kernel", **changes: Any
) -> None:
    """A job that ended by itself, judged, and still in Slurm's queue."""
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=END - timedelta(seconds=2), observed_at=END, kind="xid",
        code="79", severity=records.Severity.HIGH, source=source, message="fell off the bus", device=f"gpu{job_id}",
    )  # fmt: skip
    bulk.load_events(service.store.connection_uri(), [event])
    attempt = records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=SUBMIT, start_at=START, end_at=END, state="FAILED", exit_code=1,
        nodes=("n1", "n2"), user="alice", name="train", partition="gpu", run_key=str(job_id), attempt=changes.pop("attempt", 1),
    )  # fmt: skip
    service.store.upsert_attempts([attempt])
    values: dict[str, Any] = {
        "cluster": "c", "job_id": job_id, "submit_at": SUBMIT, "cause": "gpu_lost", "node": "n2", "device": "gpu3",
        "domain": records.Domain.HARDWARE, "confidence": records.Confidence.LIKELY, "summary": "GPU 3 of n2",
        "evidence": (event.event_id,), "rules_version": "1", "made_at": fakes.NOW, "attempt": attempt.attempt,
    }  # fmt: skip
    service.store.save_verdicts([records.Verdict(**(values | changes))])
    slurm.held[job_id] = fakes.live_job(job_id, start_at=START, end_at=END, submit_at=SUBMIT)


def rows(service: context.Context, action: str = "restart") -> list[records.Drain]:
    return service.store.drains(actions=[action])


def verbs(slurm: fakes.FakeSlurm) -> list[str]:
    return [act[0] for act in slurm.acts]


ONCE = ["requeue_held", "exclude", "release"]


def test_a_hardware_death_is_requeued_away_from_its_node(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """One row and one pass; the node left out is a row of its own; the next passes do nothing more."""
    died(service, slurm)
    assert restarts.run(service) == "restart of job 7 done"
    assert verbs(slurm) == ONCE
    (row,) = rows(service)
    assert (row.state, row.node, row.job_id, row.submit_at) == ("done", "n2", 7, SUBMIT)
    assert row.detail["log"] == "not kept: no agent of its nodes answers"
    (mark,) = rows(service, "exclude")
    assert (mark.state, mark.node, mark.ended_at) == ("done", "n2", None)
    assert slurm.held[7].excluded_nodes == ("n2",)
    assert not slurm.held[7].held_by_requeue
    assert restarts.run(service) == ""
    assert verbs(slurm) == ONCE


def test_a_node_under_test_counts_against_the_budget(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """It is out of service as a drained one is, and leaving another out of the job takes one more."""
    fakes.spend_budget_on_a_test(service, "n4")
    died(service, slurm)
    assert restarts.run(service) == (
        f"restart of job 7 denied: budget: 1 of 1 nodes of the cluster taken within {service.config.policy.budget_window_s:.0f} s"
    )
    assert verbs(slurm) == []


def test_no_node_is_left_out_while_drains_take_nodes_of_the_same_budget(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """Each would count the nodes without the other's, and two would take the last one."""
    died(service, slurm)
    other = dataclasses.replace(service, journal=journal.Journal())
    with turns.take(other, "actions") as theirs:
        assert theirs
        assert restarts.run(service) == ""
        assert rows(service) == []
    assert restarts.run(service) == "restart of job 7 done"


def test_a_programs_own_failure_leaves_no_row(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """600 bugs are 600 jobs nobody decides about, and Slurm is not even asked."""
    died(service, slurm, cause="user_error", domain=records.Domain.USER_PROGRAM, node=None)
    died(service, slurm, 8, confidence=records.Confidence.POSSIBLE)
    slurm.down = True
    assert restarts.run(service) == ""
    assert rows(service) == []


def test_what_only_the_job_itself_saw_is_refused_once(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """A verdict on the job's own words: recorded with its reason, done never; but not before a node's evidence may have come."""
    died(service, slurm, source="joblog")
    assert restarts.run(service) == ""
    assert rows(service) == []
    service.clock.at += timedelta(seconds=41)  # type: ignore[attr-defined]
    assert "no node reported a fault" in restarts.run(service)
    assert restarts.run(service) == ""
    assert [r.state for r in rows(service)] == ["skipped"]
    assert slurm.acts == []


def test_evidence_that_comes_late_brings_the_job_back(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """First only its own words say why it ended; the node's poll says the same seconds later."""
    died(service, slurm, source="joblog")
    assert restarts.run(service) == ""
    died(service, slurm)
    assert restarts.run(service) == "restart of job 7 done"


def test_observe_only_simulates(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """The row says what would have been done; nothing is."""
    policy = dataclasses.replace(service.config.policy, observe_only=True)
    service.config = dataclasses.replace(service.config, policy=policy)
    died(service, slurm)
    restarts.run(service)
    assert [(r.state, r.why_state) for r in rows(service)] == [("simulated", "observe-only")]
    assert slurm.acts == []
    assert restarts.run(service) == ""


def test_it_can_be_switched_off(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """policy.restart_ended = false."""
    policy = dataclasses.replace(service.config.policy, restart_ended=False)
    service.config = dataclasses.replace(service.config, policy=policy)
    died(service, slurm)
    assert restarts.run(service) == ""
    assert rows(service) == []


def test_the_runs_budget_is_denied_once(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Three restarts of the run within the window: a fourth is denied, in one row however often it is looked at."""
    died(service, slurm)
    for n in range(3):
        service.store.save_drain(
            records.Drain(
                drain_id=uuid.uuid4(), cluster="c", node="n2", at=fakes.NOW - timedelta(hours=n + 1), action="restart",
                reason="probing: x", owner="probing", state="done", job_id=7, submit_at=SUBMIT - timedelta(hours=n + 1),
                detail={"leader": 7, "run_key": "7", "user": "alice"},
            )
        )  # fmt: skip
    assert "3 of 3 times" in restarts.run(service)
    service.clock.at += timedelta(seconds=31)  # type: ignore[attr-defined]
    assert restarts.run(service) == ""
    assert [r.state for r in rows(service)].count("denied") == 1


STEPS = [
    "before save_drain",
    "after save_drain",
    "before requeue_held",
    "after requeue_held",
    "before exclude",
    "after exclude",
    "before depend",
    "after depend",
    "before release",
    "after release",
    "before update_drain",
    "after update_drain",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_line_it_ends_in_the_same_state(
    step: str, service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the next passes the job is in the queue once, without its culprit and not held, its dependent waits, and the rows say so."""
    died(service, slurm)
    slurm.held[9] = fakes.live_job(
        9, name="eval", state="PENDING", reason="DependencyNeverSatisfied", dependency="afterok:7(failed)"
    )
    with monkeypatch.context() as dying:
        fakes.killed_at(step, service, slurm, dying)
        with pytest.raises(fakes.Killed):
            restarts.run(service)
    for _ in range(3):
        service.clock.at += timedelta(seconds=31)  # type: ignore[attr-defined]
        service = dataclasses.replace(service)
        restarts.run(service)
    assert (slurm.held[7].state, slurm.held[7].restart_count) == ("PENDING", 1)
    assert (slurm.held[7].excluded_nodes, slurm.held[7].held_by_requeue) == (("n2",), False)
    assert slurm.held[9].reason != "DependencyNeverSatisfied"
    assert verbs(slurm).count("requeue_held") == 1
    assert [r.state for r in rows(service)].count("done") == 1
    assert not any(restart_acts.is_begun(r) for r in rows(service))
    assert [m.state for m in rows(service, "exclude")] == ["done"]


def test_slurm_goes_away_while_the_job_is_held(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row stays begun, and the job is released as soon as Slurm answers."""
    died(service, slurm)
    real = slurm.requeue_held

    def then_away(*given: Any, **named: Any) -> Any:
        done = real(*given, **named)
        slurm.down = True
        return done

    monkeypatch.setattr(slurm, "requeue_held", then_away)
    restarts.run(service)
    assert slurm.held[7].held_by_requeue
    assert [restart_acts.is_begun(r) for r in rows(service)] == [True]
    slurm.down = False
    restarts.run(service)
    assert not slurm.held[7].held_by_requeue
    assert [r.state for r in rows(service)] == ["done"]


def test_the_log_is_kept_before_the_new_start(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """The first node is asked to copy it while the job is held; the release waits for its answer, and for 20 s at most."""
    died(service, slurm)
    fakes.deliver(service.store, "n1", at=fakes.NOW)
    assert restarts.run(service).endswith("its log is being copied")
    assert [r["verb"] for r in open_requests(service)] == ["keep_log"]
    assert slurm.held[7].held_by_requeue
    assert restarts.run(service) == "restart of job 7 goes on"
    service.clock.at += kept_logs.PATIENCE  # type: ignore[attr-defined]
    assert restarts.run(service) == "restart of job 7 done"
    assert not slurm.held[7].held_by_requeue
    assert verbs(slurm) == ["requeue_held", "exclude", "release"]
    assert rows(service)[0].detail["log"] == "not kept: n1 did not answer within 20 s"


def test_the_log_was_kept(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """An agent that answers is believed."""
    died(service, slurm)
    with fakes.answering(service.store.connection_uri(), "n1") as calls:
        for _ in range(600):
            if restarts.run(service).endswith("done"):
                break
            service.stopping.wait(0.1)
    assert [(r.verb, r.job_id) for r in calls] == [("keep_log", 7)]
    assert calls[0].detail == {"most_bytes": service.config.policy.keep_log_bytes}
    assert service.memory(kept_logs.LogRequests) == {}
    assert rows(service)[0].detail["log"] == "n1 was asked to keep it"


def open_requests(service: context.Context) -> list[dict[str, Any]]:
    return service.store.rows("SELECT verb, job_id FROM probing.node_request", {})


@pytest.mark.parametrize(
    "own",
    [
        {"requeue": False},
        {"batch": False},
        {"required_nodes": ("n2",)},
        {"flags": frozenset({"COMPLETING"})},
    ],
    ids=("no-requeue", "interactive", "asks for the node", "not free yet"),
)
def test_a_job_that_is_not_restarted_gets_no_copy_of_its_log(
    service: context.Context, slurm: fakes.FakeSlurm, own: dict[str, Any]
) -> None:
    """A copy in the user's directory is made only once Slurm has taken the restart."""
    died(service, slurm)
    fakes.deliver(service.store, "n1", at=fakes.NOW)
    slurm.held[7] = dataclasses.replace(slurm.held[7], **own)
    restarts.run(service)
    assert "requeue_held" not in verbs(slurm)
    assert open_requests(service) == []


def test_a_dead_jobs_log_is_not_copied_before_its_verdict(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """It left a node with a fresh hard fault, and may have died of its own bug."""
    now = service.clock.now()
    begun = now - timedelta(minutes=5)
    allocation = records.JobAllocation(
        cluster="c", node="n2", job_id=9, at=begun, released_at=now - timedelta(seconds=1)
    )
    fault = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=now - timedelta(seconds=3), observed_at=now, kind="gpu_lost",
        severity=records.Severity.HIGH, source="nvml", message="is lost", device="gpu3", gpu_uuid="GPU-3",
    )  # fmt: skip
    fakes.deliver(service.store, "n2", fault, at=now, allocations=[allocation])
    attempt = records.JobAttempt(
        cluster="c", job_id=9, submit_at=begun, start_at=begun, end_at=now - timedelta(seconds=1), state="FAILED",
        nodes=("n2",), user="alice", name="train", partition="gpu", run_key="9",
    )  # fmt: skip
    service.store.upsert_attempts([attempt])
    slurm.held[9] = fakes.live_job(9, start_at=begun, state="FAILED")
    assert restarts.run(service) == ""
    assert service.store.verdicts() == []
    assert open_requests(service) == []


@pytest.mark.parametrize("ahead_s", [0, 600, -3600], ids=["right", "ahead", "behind"])
def test_a_death_is_not_left_to_the_next_poll(
    service: context.Context, slurm: fakes.FakeSlurm, ahead_s: int
) -> None:
    """A job that left a node with a fresh hard fault: accounting is asked at once, and judges; without such a fault it is not.

    When its Prolog and its Epilog ran counts by the server's clock.
    """
    now, ahead = service.clock.now(), timedelta(seconds=ahead_s)
    allocation = records.JobAllocation(
        cluster="c",
        node="n2",
        job_id=9,
        at=now - timedelta(minutes=5) + ahead,
        released_at=now - timedelta(seconds=8) + ahead,
    )
    fakes.deliver(service.store, "n2", allocations=[allocation])
    with service.store.engine.begin() as connection:
        # By this test's clock, which stands where the file was imported.
        query = "UPDATE probing.job_allocation SET received_at = :at"
        connection.execute(sa.text(query), {"at": now - timedelta(minutes=5)})
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    restarts.run(service)
    assert sacct.calls == []
    fault = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n2", at=now - timedelta(seconds=10), observed_at=now, kind="gpu_lost",
        severity=records.Severity.HIGH, source="nvml", message="is lost", device="gpu3", gpu_uuid="GPU-3",
    )  # fmt: skip
    fakes.deliver(service.store, "n2", fault)
    started, over = (str(int((now - timedelta(seconds=s)).timestamp())) for s in (300, 8))
    sacct.rows = [
        fakes.row(
            9, State="FAILED", Submit=started, Eligible=started, Start=started, End=over, ExitCode="1:0"
        )
    ]
    later(service, seconds=4)
    restarts.run(service)
    assert len(sacct.calls) > 0
    slurm.held[9] = fakes.live_job(9)
    for _ in range(3):
        later(service, seconds=4)
        restarts.run(service)
    assert [v.job_id for v in service.store.verdicts()] == [9]
    n_calls = len(sacct.calls)
    later(service, seconds=4)
    restarts.run(service)
    assert len(sacct.calls) == n_calls, "once it is judged nobody asks again"


def test_a_node_that_is_back_is_given_back(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Only a waiting job's list can be changed, and only a node that has been green for long enough is back."""
    died(service, slurm)
    restarts.run(service)
    later(service, seconds=60)
    assert restarts.run(service) == ""
    later(service, seconds=service.config.policy.resume_green_s)
    slurm.held[7] = dataclasses.replace(slurm.held[7], state="RUNNING")
    assert restarts.run(service) == ""
    slurm.held[7] = dataclasses.replace(slurm.held[7], state="PENDING")
    later(service, seconds=30)
    assert restarts.run(service) == "n2 no longer left out of job 7: the node is back"
    assert slurm.held[7].excluded_nodes == ()
    (mark,) = rows(service, "exclude")
    assert (mark.ended_at, mark.why_state) == (service.clock.now(), "the node is back")


def test_an_exclusion_ends_with_its_job(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Slurm has forgotten the job, or it is over."""
    died(service, slurm)
    restarts.run(service)
    del slurm.held[7]
    later(service, seconds=30)
    assert restarts.run(service) == "n2 no longer left out of job 7: the job has ended"


def later(service: context.Context, seconds: float) -> None:
    """Time passes, and n2's agent beats without a fault."""
    service.clock.at += timedelta(seconds=seconds)  # type: ignore[attr-defined]
    fakes.deliver(service.store, "n2", at=service.clock.now())


def test_our_exclusions_are_no_users(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """What a restart left out speaks against no node; who waits for whom is kept."""
    died(service, slurm)
    restarts.run(service)
    slurm.held[8] = fakes.live_job(8, excluded_nodes=("n2",), dependency="afterok:7(unfulfilled),singleton")
    assert exclusions.run(service) == "1 exclusions, 2 dependencies"
    assert {d.job_id for d in service.store.dependencies([7], "c")} == {8}
    assert {d.job_id for d in service.store.dependencies([0], "c")} == {8}


def test_a_loop_of_the_programs_own_is_told(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """A job that its own script requeues dies three times at one step: a row says so, and nothing is done."""
    for n in range(3):
        begun = START + timedelta(minutes=n)
        attempt = records.JobAttempt(
            cluster="c", job_id=7, submit_at=begun, start_at=begun, end_at=begun + timedelta(seconds=50), state="FAILED",
            nodes=("n1",), user="alice", attempt=n + 1, restart_count=n, run_key="7",
        )  # fmt: skip
        service.store.upsert_attempts([attempt])
        events = [
            records.HealthEvent(
                event_id=uuid.uuid4(), cluster="c", node="n1", at=attempt.end_at, observed_at=attempt.end_at, kind=kind,
                code=code, severity=records.Severity.INFO, source=source, message="", job_id=7,
                detail={"restart_count": n, **detail},
            )
            for kind, code, source, detail in (
                ("last_progress", None, "probe", {"steps": 4120}),
                ("python_exception", None, "joblog", {"exception": "KeyError"}),
            )
        ]  # fmt: skip
        bulk.load_events(service.store.connection_uri(), events)
        service.store.save_verdicts(
            [
                records.Verdict(
                    cluster="c", job_id=7, submit_at=begun, attempt=n + 1, cause="user_error", summary="",
                    domain=records.Domain.USER_PROGRAM, confidence=records.Confidence.CERTAIN, rules_version="1",
                    evidence=(events[1].event_id,), made_at=fakes.NOW,
                )
            ]
        )  # fmt: skip
    slurm.held[7] = fakes.live_job(7, restart_count=2)
    assert restarts.run(service).endswith(
        "three starts in a row died at step 4120 with the same KeyError: it is the program"
    )
    (row,) = rows(service)
    assert (row.state, row.detail["loop"], row.detail["step"]) == ("skipped", True, 4120)
    assert slurm.acts == []
