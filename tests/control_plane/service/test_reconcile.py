"""First the row, then the act, then its outcome: wherever the service is killed in between, the next pass records the truth."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import pytest
import test_tasks

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service import reconcile
from probing_cluster.control_plane.service.tasks.nodes import actions, resume
from probing_cluster.core import errors, records
from probing_cluster.slurm_plugins import commands

STEPS = [
    "before save_drain",
    "after save_drain",
    "before drain",
    "after drain",
    "before update_drain",
    "after update_drain",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_drain_killed_anywhere_is_recorded_as_it_is(
    step: str, service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the next passes the node is drained once, and one row says so: it can be resumed."""
    fakes.deliver(service.store, "n2", test_tasks.xid())
    with monkeypatch.context() as dying:
        fakes.killed_at(step, service, slurm, dying)
        with pytest.raises(fakes.Killed):
            actions.run(service)
    again(service)
    service.clock.at += timedelta(seconds=60)  # type: ignore[attr-defined]
    fakes.deliver(
        service.store, "n2", test_tasks.xid(at=service.clock.now(), observed_at=service.clock.now())
    )
    again(service)
    assert [a[0] for a in slurm.acts] == ["drain"]
    assert [d.state for d in service.store.drains(open_only=True)] == ["done"]
    assert [d for d in service.store.drains() if d.why_state == view.BEGUN] == []
    done = [d for d in service.store.drains() if d.state == "done"]
    assert done[0].why_state == (reconcile.AFTER if step in {"after drain", "before update_drain"} else "")


def again(service: context.Context) -> None:
    """A pass of a service that has just started."""
    started = dataclasses.replace(service)
    actions.run(started)


@pytest.mark.parametrize("step", ["before requeue", "after requeue"])
def test_a_requeue_killed_is_recorded_as_it_is(
    step: str, service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs on: not done. It has started anew: done."""
    slurm.running[7] = test_tasks.running(7)
    fakes.deliver(service.store, "n2", test_tasks.xid(), allocations=[test_tasks.holds(7)])
    with monkeypatch.context() as dying:
        fakes.killed_at(step, service, slurm, dying)
        with pytest.raises(fakes.Killed):
            actions.run(service)
    if step == "after requeue":
        slurm.running[7] = test_tasks.running(7, "n3", start_at=service.clock.now() + timedelta(seconds=5))
    reconcile.settle(service, service.clock.now())
    (row,) = [d for d in service.store.drains() if d.action == "requeue"]
    assert row.state == ("done" if step == "after requeue" else "failed")
    assert row.why_state == (
        reconcile.AFTER if row.state == "done" else "the service ended before it was done: the job runs on"
    )


@pytest.mark.parametrize("reached", [False, True], ids=["before the write", "after it"])
def test_slurm_that_stops_answering_in_the_act_decides_nothing(
    reached: bool, service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The act is neither failed nor denied; once Slurm answers it was done, or it is decided anew, half a minute after the first try."""
    fakes.deliver(service.store, "n2", test_tasks.xid())
    with monkeypatch.context() as away:
        work = slurm.drain

        def gone(*given: Any) -> Any:
            if reached:
                work(*given)
            raise commands.SlurmAway("Unable to contact slurm controller")

        away.setattr(slurm, "drain", gone)
        with pytest.raises(commands.SlurmAway):
            actions.run(service)
    (row,) = service.store.drains()
    assert view.is_begun(row)
    again(service)
    again(service)
    assert len(service.store.drains()) == 1
    later = fakes.NOW + timedelta(seconds=30)
    service.clock.at = later  # type: ignore[attr-defined]
    again(service)
    found = [(d.state, d.why_state) for d in service.store.drains()]
    assert found == (
        [("done", reconcile.AFTER)] if reached else [("skipped", view.DECIDED_ANEW), ("done", "")]
    )
    assert [a[0] for a in slurm.acts] == ["drain"]


def begun(action: str = "drain", **changes: Any) -> records.Drain:
    """A decision without an outcome."""
    usual = {
        "drain_id": uuid.uuid4(), "cluster": "c", "node": "n2", "at": fakes.NOW, "action": action, "reason": "probing: xid 79 gpu3",
        "owner": "probing", "state": "failed", "why_state": view.BEGUN,
    }  # fmt: skip
    return records.Drain(**(usual | changes))


def settled(service: context.Context, row: records.Drain) -> tuple[str, str]:
    """What becomes of a row."""
    service.store.save_drain(row)
    reconcile.settle(service, service.clock.now())
    (found,) = service.store.drains()
    return found.state, found.why_state


def test_a_node_that_is_not_drained_was_not(service: context.Context) -> None:
    """The row says what Slurm shows, and that nobody knows whether somebody lifted it."""
    state, why = settled(service, begun())
    assert (state, "Slurm shows IDLE" in why) == ("failed", True)


@pytest.mark.parametrize("done", [False, True])
def test_a_persons_unanswered_drain_is_settled_by_what_slurm_shows(
    service: context.Context, slurm: fakes.FakeSlurm, *, done: bool
) -> None:
    """Once the command that asked is surely over; nobody decides anew what a person asked for."""
    if done:
        slurm.state["n2"] = view.Node(
            name="n2", states=frozenset({"IDLE", "DRAIN"}), reason="probing: fan (eve)"
        )
    row = begun(reason="probing: fan (eve)", owner="eve", why_state=view.OUTCOME_UNKNOWN)
    at = service.clock.now()
    service.store.save_drain(dataclasses.replace(row, at=at - timedelta(minutes=4)))
    assert reconcile.settle(service, at) == []
    assert settled(service, dataclasses.replace(row, at=at - timedelta(minutes=6))) == (
        ("done", reconcile.AFTER) if done else ("failed", reconcile.NOT_DONE)
    )


def test_anothers_drain_is_not_ours(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """Drained with another reason: ours was not done."""
    slurm.state["n2"] = view.Node(name="n2", states=frozenset({"IDLE", "DRAIN"}), reason="bad fan (eve)")
    assert settled(service, begun())[0] == "failed"


def test_a_requeued_attempt_proves_it(service: context.Context) -> None:
    """The job is pending; accounting has the attempt that our requeue ended."""
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=fakes.NOW - timedelta(hours=2), start_at=fakes.NOW - timedelta(hours=1),
        end_at=fakes.NOW + timedelta(seconds=3), state="REQUEUED", nodes=("n2",),
    )  # fmt: skip
    service.store.upsert_attempts([attempt])
    assert settled(service, begun("requeue", job_id=7)) == ("done", reconcile.AFTER)


def test_a_job_that_is_gone_proves_nothing(service: context.Context) -> None:
    """Whether it was requeued or had ended nobody can tell, and the row says that."""
    state, why = settled(service, begun("requeue", job_id=7))
    assert (state, "it may have been done" in why) == ("failed", True)


def test_a_job_whose_text_cannot_be_read_proves_nothing(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others that were begun are settled all the same."""

    def job(job_id: int) -> view.ActiveJob | None:
        raise errors.MalformedInput(f"JobState does not stand exactly once in 'JobId={job_id} JobName=x'")

    monkeypatch.setattr(slurm, "job", job)
    state, why = settled(service, begun("requeue", job_id=7))
    assert (state, "exactly once" in why) == ("failed", True)


def test_a_persons_drain_may_be_under_way(service: context.Context) -> None:
    """`probing-ctl drain` holds no turn: its row is left alone for some minutes."""
    assert settled(service, begun(owner="eve")) == ("failed", view.BEGUN)
    assert [d.owner for d in reconcile.unrecorded(service, fakes.NOW + timedelta(minutes=6))] == ["eve"]


@pytest.mark.parametrize("step", ["before resume", "after resume"])
def test_a_resume_killed_is_ours(
    step: str, service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that we resumed is not said to be lifted by another; one that we did not is resumed at the next pass."""
    reason = "probing: xid 79 gpu3"
    slurm.state["n2"] = view.Node(
        name="n2", states=frozenset({"IDLE", "DRAIN"}), reason=reason, partitions=("gpu",)
    )
    row = begun(state="done", why_state="", at=fakes.NOW - timedelta(hours=1))
    service.store.save_drain(row)
    with monkeypatch.context() as dying:
        fakes.killed_at(step, service, slurm, dying)
        with pytest.raises(fakes.Killed):
            resume._resume(service, row, "healthy", fakes.NOW)
    resume.run(service)
    (found,) = service.store.drains()
    if step == "after resume":
        assert (found.state, found.why_state) == ("resumed", reconcile.AFTER)
    else:
        assert (found.state, found.ended_at) == ("done", None)
