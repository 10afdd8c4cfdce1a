from __future__ import annotations

import dataclasses
import itertools
import os
import pwd
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fakes
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.doctor import site_database
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import by_hand
from probing_cluster.control_plane.service import tasks
from probing_cluster.control_plane.service.tasks.database import export, maintenance
from probing_cluster.control_plane.service.tasks.jobs import accounting, accounts, attribution
from probing_cluster.control_plane.service.tasks.nodes import actions, drained, resume, silence
from probing_cluster.control_plane.terminal import node_table
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import bulk
from probing_cluster.db.server import embedded
from probing_cluster.reports import node_state
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import job_steps
from tests import unjudged
from tests.set_clock import SetClock

NOW = fakes.NOW


def ago(seconds: float) -> object:
    return NOW - timedelta(seconds=seconds)


def xid(n: int = 1, node: str = "n2", **changes: object) -> records.HealthEvent:
    values: dict[str, object] = {
        "event_id": uuid.UUID(int=n), "cluster": "c", "node": node, "at": ago(5), "observed_at": ago(5),
        "kind": "xid", "code": "79", "severity": records.Severity.HIGH, "device": "gpu3", "gpu_uuid": "GPU-3",
        "source": "kernel", "message": "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.",
    }  # fmt: skip
    return records.HealthEvent(**(values | changes))


def holds(
    job_id: int, *uuids: str, node: str = "n2", at_s: float = 1200, restart: int = 0, **detail: Any
) -> records.JobAllocation:
    return records.JobAllocation(
        cluster="c", node=node, job_id=job_id, restart_count=restart, at=ago(at_s), uid=1000, gpu_uuids=uuids or ("GPU-3",), detail=detail
    )  # fmt: skip


def running(job_id: int, *nodes: str, **changes: object) -> view.ActiveJob:
    values: dict[str, object] = {"job_id": job_id, "start_at": ago(1200), "nodes": nodes or ("n2",)}
    return view.ActiveJob(**(values | changes))


def test_a_fresh_fault_drains_and_requeues_once_and_every_act_is_a_row(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The spine: drain, then requeue, both recorded with their evidence; the next pass does nothing more."""
    slurm.running[7] = running(7, "n1", "n2")
    fakes.deliver(service.store, "n2", xid(), allocations=[holds(7)])
    assert actions.run(service) == "drain n2 done, requeue n2 done"
    assert slurm.acts == [("drain", "n2", "probing: xid 79 gpu3"), ("requeue", "7")]
    rows = service.store.drains()
    assert [(d.action, d.state, d.job_id, d.event_ids) for d in rows] == [
        ("drain", "done", None, (uuid.UUID(int=1),)),
        ("requeue", "done", 7, (uuid.UUID(int=1),)),
    ]
    assert actions.run(service) == ""
    assert len(slurm.acts) == 2


def test_a_pass_out_of_turn_is_nobodys_missed_turn(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owed mails and deaths have attempts judged, too: whoever finds this service at it leaves it to that, and no alarm names another service."""
    found: list[str] = []
    real = attribution.attribute.attribute

    def slow(*given: Any, **named: Any) -> Any:
        found.extend(attribution.run(service) for _ in range(3))
        return real(*given, **named)

    monkeypatch.setattr(attribution.attribute, "attribute", slow)
    attribution.run(service)
    assert found == ["", "", ""]
    assert not any(service.journal.turns_missed().values())


def test_observe_only_records_and_touches_nothing(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """The installed default: every decision is a row, Slurm is told nothing."""
    service.config = settings.Settings(cluster=settings.ClusterSettings(name="c"))
    slurm.running[7] = running(7)
    fakes.deliver(service.store, "n2", xid(), allocations=[holds(7)])
    actions.run(service)
    actions.run(service)
    assert slurm.acts == []
    assert [(d.action, d.state) for d in service.store.drains()] == [
        ("drain", "simulated"),
        ("requeue", "simulated"),
    ]


def test_without_a_grave_event_slurm_is_not_even_asked(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """Once a second, nothing to decide: the controller is left in peace."""
    slurm.down = True
    fakes.deliver(service.store, "n2", xid(severity=records.Severity.INFO))
    assert actions.run(service) == ""


def test_slurm_away_is_said_and_nothing_is_recorded_as_done(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """With Slurm away the pass ends unavailable; when it is back the drain follows."""
    fakes.deliver(service.store, "n2", xid())
    slurm.down = True
    done = journal.one_pass(service.journal, "actions", lambda: actions.run(service), service.clock)
    assert done.outcome == "unavailable"
    assert service.store.drains() == []
    slurm.down = False
    assert actions.run(service) == "drain n2 done"


def test_a_drain_that_fails_keeps_the_jobs_of_the_node(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """No requeue onto a node that is still in service."""
    from probing_cluster.slurm_plugins.acts import nodes

    slurm.outcome = nodes.Outcome(state="failed", why="access denied")
    slurm.running[7] = running(7)
    fakes.deliver(service.store, "n2", xid(), allocations=[holds(7)])
    actions.run(service)
    rows = [(d.action, d.state, d.why_state) for d in service.store.drains()]
    assert rows == [
        ("drain", "failed", "access denied"),
        ("requeue", "skipped", "its node could not be drained"),
    ]
    assert 7 in slurm.running


@pytest.mark.parametrize(
    ("present", "why"),
    [
        (None, "it has ended by itself"),
        (running(7, restart_count=1), "Slurm now shows another attempt of it"),
        (running(7, start_at=ago(1)), "Slurm now shows another attempt of it"),
        (running(7, "n1"), "Slurm now shows another attempt of it"),
    ],
    ids=["gone", "restarted", "started anew", "elsewhere"],
)
def test_a_job_that_changed_meanwhile_is_not_requeued(
    service: context.Context, slurm: fakes.FakeSlurm, present: view.ActiveJob | None, why: str
) -> None:
    """Slurm is read again just before: only the very attempt that met the fault is requeued."""
    decided = running(7)
    slurm.running[7] = decided
    fakes.deliver(service.store, "n2", xid(), allocations=[holds(7)])
    slurm.job = lambda _: present  # type: ignore[method-assign]
    actions.run(service)
    (row,) = [d for d in service.store.drains() if d.action == "requeue"]
    assert (row.state, row.why_state) == ("skipped", why)
    assert [a[0] for a in slurm.acts] == ["drain"]


def test_a_job_whose_text_cannot_be_read_ends_no_pass(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner wrote Slurm's keys into its name: it is not requeued, and the other jobs of the node are."""
    for job_id in (7, 8):
        slurm.running[job_id] = running(job_id)
    read = slurm.job

    def job(job_id: int) -> view.ActiveJob | None:
        if job_id == 7:
            raise errors.MalformedInput("JobState does not stand exactly once in 'JobId=7 JobName=x'")
        return read(job_id)

    monkeypatch.setattr(slurm, "job", job)
    fakes.deliver(service.store, "n2", xid(), allocations=[holds(7), holds(8)])
    actions.run(service)
    done = {d.job_id: (d.state, d.why_state) for d in service.store.drains() if d.action == "requeue"}
    assert (done[7][0], "exactly once" in done[7][1]) == ("failed", True)
    assert done[8][0] == "done"


def test_a_fault_that_ended_while_its_node_was_drained_takes_no_job(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The latest heartbeat is read again just before: what the agent no longer sees requeues nothing."""
    slurm.running[7] = running(7)
    fakes.deliver(service.store, "n2", xid(), allocations=[holds(7)])
    drain = slurm.drain

    def slowly(name: str, reason: str, reservation: str) -> object:
        fakes.deliver(service.store, name)
        return drain(name, reason, reservation)

    slurm.drain = slowly  # type: ignore[assignment]
    actions.run(service)
    (row,) = [d for d in service.store.drains() if d.action == "requeue"]
    assert (row.state, row.why_state) == ("skipped", "the agent no longer sees the fault")
    assert 7 in slurm.running


def test_with_the_database_away_nothing_is_done(
    service: context.Context, slurm: fakes.FakeSlurm, postgres_directory: object
) -> None:
    """Postgres stopped: the pass is unavailable and Slurm untouched; back again, it acts."""
    fakes.deliver(service.store, "n2", xid())
    embedded.stop(postgres_directory)  # type: ignore[arg-type]
    try:
        done = journal.one_pass(service.journal, "actions", lambda: actions.run(service), service.clock)
        assert (done.outcome, slurm.acts) == ("unavailable", [])
    finally:
        embedded.ensure(postgres_directory)  # type: ignore[arg-type]
    assert actions.run(service) == "drain n2 done"


def test_a_standing_fault_gives_the_node_a_permission_to_refuse(service: context.Context) -> None:
    """An old event whose drain Slurm refused, still confirmed: the Prolog may refuse, for a short while, and it counts as a decision."""
    old = xid(at=ago(4000), observed_at=ago(4000))
    fakes.deliver(service.store, "n2", old)
    service.store.save_drain(a_drain(at=ago(3990), state="failed", event_ids=(old.event_id,)))
    assert actions.run(service) == "refuse n2 done"
    from probing_cluster.db import delivery

    ack = delivery.Delivery(service.store.connection_uri(), "c", "n2").deliver(events=[])
    (request,) = ack.requests
    assert (request.verb, request.detail["event_ids"]) == ("refusal_permission", [str(old.event_id)])


def a_drain(**changes: Any) -> records.Drain:
    values: dict[str, Any] = {
        "drain_id": uuid.uuid4(), "cluster": "c", "node": "n2", "at": ago(60), "action": "drain", "state": "done",
        "reason": "probing: xid 79 gpu3", "owner": "probing",
    }  # fmt: skip
    return records.Drain(**(values | changes))


def test_a_fault_that_nobody_could_decide_about_in_time_drains_when_somebody_can(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The service was away for an hour while the agent reported; of a fault of last week nobody knows what was decided."""
    fakes.deliver(service.store, "n2", xid(at=ago(3600), observed_at=ago(3600)))
    fakes.deliver(service.store, "n3", xid(2, "n3", at=ago(8 * 86400), observed_at=ago(8 * 86400)))
    assert actions.run(service) == "drain n2 done, refuse n3 done"
    assert slurm.acts == [("drain", "n2", "probing: xid 79 gpu3")]
    assert actions.run(service) == ""


def test_a_fault_of_a_maintenance_drains_once_that_is_over(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """While it lasts the node is left alone; Slurm is asked again each minute, however old the event is by then."""
    slurm.state["n2"] = dataclasses.replace(slurm.state["n2"], states=frozenset({"IDLE", "MAINTENANCE"}))
    fakes.deliver(service.store, "n2", xid())
    assert actions.run(service) == "drain n2 skipped"
    clock = service.clock
    assert isinstance(clock, SetClock)
    for minutes in (10, 20):
        clock.at = NOW + timedelta(minutes=minutes)
        fakes.deliver(service.store, "n2", xid(), at=clock.at)
        assert actions.run(service) == ""
    slurm.state["n2"] = dataclasses.replace(slurm.state["n2"], states=frozenset({"IDLE"}))
    clock.at = NOW + timedelta(minutes=22)
    fakes.deliver(service.store, "n2", xid(), at=clock.at)
    assert actions.run(service) == "drain n2 done"


@pytest.mark.parametrize(
    "kept", ["scontrol", "a moment ago", "resumed", "another fault's", "denied", "simulated"]
)
def test_an_old_fault_drains_no_node_that_a_person_brought_back(
    service: context.Context, slurm: fakes.FakeSlurm, kept: str
) -> None:
    """By Slurm's own word or by our row, whatever the drain was for; nor one about which was decided."""
    old = xid(at=ago(3600), observed_at=ago(3600))
    fakes.deliver(service.store, "n2", old)
    over = {"at": ago(3000), "state": "resumed", "ended_at": ago(1200)}
    drains = {
        "a moment ago": a_drain(at=ago(3000), event_ids=(uuid.UUID(int=77),)),
        "resumed": a_drain(owner="eve", **over),
        "another fault's": a_drain(event_ids=(uuid.UUID(int=77),), **over),
        "denied": a_drain(at=ago(3590), state="denied", event_ids=(old.event_id,)),
        "simulated": a_drain(at=ago(3590), state="simulated", event_ids=(old.event_id,)),
    }
    if kept in drains:
        service.store.save_drain(drains[kept])
    else:
        slurm.out = [
            view.Outage(node="n2", start_at=ago(86400), end_at=ago(1200), reason="alice: pdu work")  # type: ignore[arg-type]
        ]
    spans: list[object] = []
    outages = slurm.outages
    slurm.outages = lambda *span: (spans.append(span), outages(*span))[1]  # type: ignore[method-assign,func-returns-value]
    for _ in range(4):
        actions.run(service)
        service.clock.at += timedelta(seconds=6)  # type: ignore[attr-defined]
    assert slurm.acts == []
    assert len(spans) <= 2, "accounting is asked in one pass a minute, before and under the turn"


def test_slurms_drain_for_our_refusal_becomes_ours(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """A `Prolog error` drain that matches a recorded refusal gets our reason; any other is left alone."""
    failed = {"states": frozenset({"IDLE", "DRAIN"}), "reason": "Prolog error", "partitions": ("gpu",)}
    slurm.state |= {n: view.Node(name=n, reason_at=NOW, **failed) for n in ("n2", "n3")}  # type: ignore[arg-type]
    refusal = xid(
        9, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=7,
        detail={"fault": "xid:gpu3", "event_id": str(uuid.UUID(int=1))},
    )  # fmt: skip
    fakes.deliver(service.store, "n2", refusal)
    assert actions.run(service) == "drain n2 done"
    assert slurm.acts == [("adopt", "n2", "probing: xid gpu3")]
    assert actions.run(service) == ""


@pytest.mark.parametrize("stands", [True, False])
def test_the_drain_for_a_refusal_names_the_code_of_its_fault(
    service: context.Context, slurm: fakes.FakeSlurm, *, stands: bool
) -> None:
    """As any other drain for it, whether the agent still has the fault or only reported it."""
    slurm.state["n2"] = dataclasses.replace(
        slurm.state["n2"], states=frozenset({"IDLE", "DRAIN"}), reason="Prolog error", reason_at=NOW
    )
    lost = xid()
    refusal = xid(
        9, kind="check", code="prolog_refused", source="agent", severity=records.Severity.INFO, job_id=7,
        detail={"fault": "xid:gpu3", "event_id": str(lost.event_id)},
    )  # fmt: skip
    fakes.deliver(service.store, "n2", lost, refusal, faults=stands)
    actions.run(service)
    assert slurm.acts == [("adopt", "n2", "probing: xid 79 gpu3")]


def test_a_healed_node_is_resumed_only_after_its_time_and_its_reboot(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """Without tests before the return: green for long enough, enough beats, and a reboot seen since the drain."""
    service.config = dataclasses.replace(
        service.config, repair=settings.RepairSettings(test_before_return=False)
    )
    fakes.deliver(service.store, "n2", xid())
    actions.run(service)
    clock = service.clock
    assert isinstance(clock, SetClock)
    for step in range(32):
        clock.at = NOW + timedelta(seconds=60 + 30 * step)
        fakes.deliver(service.store, "n2", at=clock.at)
        assert resume.run(service) == ""
    boot = xid(
        5, kind="node_boot", code=None, severity=records.Severity.INFO, at=clock.at, observed_at=clock.at
    )
    fakes.deliver(service.store, "n2", boot, at=clock.at)
    assert resume.run(service).startswith("n2 resumed: healthy for 930 s")
    assert slurm.acts[-1] == ("resume", "n2")
    (row,) = [d for d in service.store.drains() if d.action == "drain"]
    assert (row.state, row.ended_at) == ("resumed", clock.at)


def test_a_node_a_person_put_back_is_no_longer_ours(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """An administrator's RESUME ends our drain; we do not drain again for the same evidence."""
    fakes.deliver(service.store, "n2", xid())
    actions.run(service)
    slurm.state["n2"] = view.Node(name="n2", states=frozenset({"IDLE"}), partitions=("gpu",))
    assert resume.run(service) == "n2 lifted by another"
    assert actions.run(service) == ""


def test_tests_switched_off_in_the_middle_of_one_end_no_drain(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The node is undrained in our reservation: the workflow drains it again, and the drain's row must still be there."""
    service.config = dataclasses.replace(
        service.config, repair=settings.RepairSettings(test_before_return=False)
    )
    drain = records.Drain(
        drain_id=uuid.UUID(int=9), cluster="c", node="n2", at=NOW, action="drain", state="done",
        reason="probing: xid 79 gpu3", owner="probing",
    )  # fmt: skip
    service.store.save_drain(drain)
    incident = records.RepairIncident(
        incident_id=uuid.UUID(int=8), cluster="c", node="n2", drain_id=drain.drain_id, reason=drain.reason,
        cause="gpu", state="testing", opened_at=NOW, changed_at=NOW,
    )  # fmt: skip
    service.store.open_incident(incident)
    slurm.state["n2"] = view.Node(name="n2", states=frozenset({"IDLE", "RESERVED"}), partitions=("gpu",))
    assert resume.run(service) == ""
    assert service.store.drains(open_only=True) == [drain]
    service.store.update_incident(incident.incident_id, state="queued")
    assert resume.run(service) == "n2 lifted by another"


def test_a_persons_drain_stays_theirs(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """`probing-ctl drain` carries our prefix and no fault of ours: its row stays open until a person lifts it."""
    slurm.drain("n2", "probing: lemon, 6 failures (eve)")
    drain = records.Drain(
        drain_id=uuid.UUID(int=9), cluster="c", node="n2", at=NOW, action="drain", state="done",
        reason="probing: lemon, 6 failures (eve)", owner="eve",
    )  # fmt: skip
    service.store.save_drain(drain)
    fakes.deliver(service.store, "n2")
    assert resume.run(service) == ""
    assert service.store.drains(open_only=True) == [drain]
    slurm.state["n2"] = view.Node(name="n2", states=frozenset({"IDLE"}), partitions=("gpu",))
    assert resume.run(service) == "n2 lifted by another"


@pytest.mark.parametrize(
    ("states", "reason", "why"),
    [
        ({"IDLE"}, "", "lifted by another"),
        ({"DOWN"}, "Not responding", "lifted by another"),
        ({"IDLE", "DRAIN"}, "bad cable (eve)", "taken over by another: bad cable (eve)"),
        (None, "", "Slurm knows the node no longer"),
        ({"IDLE", "DRAIN"}, "probing: xid 79 gpu3", ""),
        ({"DOWN", "DRAIN"}, "Node unexpectedly rebooted", ""),
    ],
)
@pytest.mark.parametrize("observe_only", [False, True])
def test_a_recorded_drain_follows_what_slurm_shows(
    service: context.Context,
    slurm: fakes.FakeSlurm,
    states: set[str] | None,
    reason: str,
    why: str,
    observe_only: bool,
) -> None:
    """One poll after somebody else decided the row says so; while the drain stands, it stands."""
    service.config = dataclasses.replace(
        service.config, policy=dataclasses.replace(service.config.policy, observe_only=observe_only)
    )
    service.store.save_drain(
        records.Drain(
            drain_id=uuid.UUID(int=9), cluster="c", node="n2", at=NOW, action="drain", state="done",
            reason="probing: xid 79 gpu3", owner="probing",
        )
    )  # fmt: skip
    if states is None:
        del slurm.state["n2"]
    else:
        slurm.state["n2"] = view.Node(name="n2", states=frozenset(states), reason=reason, partitions=("gpu",))
    resume.run(service)
    (row,) = service.store.drains()
    assert (row.ended_at is None, row.why_state) == (not why, why)


def test_what_slurm_shows_drained_is_known_within_one_look(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """By whomever, with the reason's changes, until it is back; a Slurm that lists nothing says nothing."""

    def known() -> dict[str, str]:
        return {d.node: d.reason for d in service.store.slurm_drains("c")}

    def set_node(node: str, *states: str, reason: str = "") -> None:
        slurm.state[node] = dataclasses.replace(slurm.state[node], states=frozenset(states), reason=reason)

    assert drained.run(service) == ""
    set_node("n1", "IDLE", "DRAIN", reason="fan swap, ask Bob\x1b[31m")
    set_node("n2", "DOWN", reason="Node unexpectedly rebooted")
    assert drained.run(service) == "2 drains seen, 0 over"
    assert known() == {"n1": "fan swap, ask Bob", "n2": "Node unexpectedly rebooted"}
    assert drained.run(service) == ""
    set_node("n1", "IDLE", "DRAIN", reason="fan swapped")
    set_node("n2", "DOWN", reason="PSU bad (eve)")
    drained.run(service)
    assert known() == {"n1": "fan swapped", "n2": "PSU bad (eve)"}
    set_node("n2", "IDLE")
    drained.run(service)
    assert known() == {"n1": "fan swapped"}
    everything, slurm.state = slurm.state, {}
    drained.run(service)
    assert known() == {"n1": "fan swapped"}
    slurm.state = everything
    set_node("n1", "IDLE")
    assert drained.run(service) == "0 drains seen, 1 over"
    assert known() == {}


def test_that_a_prolog_failed_on_a_node_is_kept_as_an_event_once(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """Slurm drains the node for it and requeues the job: else the job looks like one that a person requeued."""
    at = service.clock.now().replace(microsecond=0)
    for state, reason in (("DRAIN", "Prolog error"), ("DRAIN", "fan swap")):
        for node in ("n1", "n2") if reason == "Prolog error" else ("n3",):
            slurm.state[node] = dataclasses.replace(
                slurm.state[node], states=frozenset({"IDLE", state}), reason=reason, reason_at=at
            )
    drained.run(service)
    service.store.save_slurm_drains("c", [], ["n1"])
    drained.run(service)
    found = service.store.events(since=at, kinds=["slurmd"], cluster="c")
    assert sorted((e.node, e.code, e.source, e.at) for e in found) == [
        (node, "prolog_failed", "slurm", at) for node in ("n1", "n2")
    ]


@pytest.mark.parametrize(
    ("states", "reason", "by"),
    [
        ({"DOWN"}, "Not responding", "slurm"),
        ({"DOWN"}, "PSU swap", ""),
        ({"IDLE", "DRAIN"}, "PSU swap", "root"),
        ({"DOWN"}, "probing: xid 79", "root"),
    ],
)
def test_only_a_persons_order_sets_a_node_down(
    service: context.Context, slurm: fakes.FakeSlurm, states: set[str], reason: str, by: str
) -> None:
    """Slurm's own reasons, ours, an unknown author and a drain, which ends no job, are none."""
    slurm.state["n1"] = view.Node(name="n1", states=frozenset(states), reason=reason, reason_by=by)
    drained.run(service)
    assert service.store.events(nodes=["n1"]) == []


def test_a_persons_order_that_set_a_node_down_is_kept_with_author_and_reason(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """It is why the node's jobs ended; looked at again it is the same event."""
    slurm.state["n1"] = view.Node(
        name="n1",
        states=frozenset({"DOWN"}),
        reason="PSU swap, ticket 4711",
        reason_at=ago(5),
        reason_by="root",
    )
    for _ in range(2):
        drained.run(service)
        service.store.save_slurm_drains(service.cluster, [], ["n1"])
    (event,) = service.store.events(nodes=["n1"])
    assert (event.kind, event.source, event.at) == ("node_set_down", "slurm", ago(5))
    assert event.message == "root set n1 DOWN: PSU swap, ticket 4711"


def test_a_slurm_that_lists_no_node_ends_no_drain(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """An empty answer is no answer about ours."""
    fakes.deliver(service.store, "n2", xid())
    actions.run(service)
    slurm.state.clear()
    resume.run(service)
    assert len(service.store.drains(open_only=True)) == 1


def test_a_silent_agent_is_told_once(service: context.Context) -> None:
    """Two missed beats make one event, also when the service is restarted and asks again."""
    fakes.deliver(service.store, "n1", beat_s=1e-6, jobs=(7,))
    fakes.deliver(service.store, "n2", beat_s=60.0)
    assert silence.run(service) == "silent: n1"
    assert silence.run(service) == ""
    service.memory(silence.AgentListening).silent.clear()
    silence.run(service)
    (event,) = service.store.events(kinds=["agent_silent"])
    assert (event.node, event.severity, event.detail["jobs"]) == ("n1", records.Severity.INFO, [7])


def test_a_silent_node_that_slurm_does_not_reach_is_written_once(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """Its agent's silence alone says nothing of the node; that Slurm does not reach it either does, DOWN or not yet. One that answers is left out."""
    for node, jobs in (("n1", (7,)), ("n2", (7,)), ("n3", ()), ("n4", (7,))):
        fakes.deliver(service.store, node, beat_s=60.0 if node == "n4" else 1e-6, jobs=jobs)
    slurm.state["n2"] = view.Node(name="n2", states=frozenset({"DOWN"}), reason="switched off by bob")
    now_s = service.clock.monotonic_s()  # so many at once were looked at twice before
    listening = service.memory(silence.AgentListening)
    listening.looked_s, listening.looked_at, listening.doubted_s = now_s, service.clock.now(), now_s - 60
    assert silence.run(service) == "silent: n1, n2, n3"
    lost = frozenset({"ALLOCATED", "NOT_RESPONDING"})
    for node in ("n1", "n3", "n4"):
        slurm.state[node] = view.Node(name=node, states=lost, reason="Not responding")
    assert silence.run(service) == "out of Slurm's reach: n1, n3"
    assert silence.run(service) == ""
    service.memory(silence.AgentListening).down.clear()
    silence.run(service)
    (event,) = service.store.events(kinds=["node_down"], nodes=["n1"])
    assert len(service.store.events(kinds=["node_down"])) == 2
    (event_before,) = service.store.events(kinds=["agent_silent"], nodes=["n1"])
    assert (event.node, event.at, event.detail["jobs"]) == ("n1", event_before.at, [7])


class _MovableClock:
    """A clock whose hands a test moves."""

    def __init__(self) -> None:
        self.wall, self.steady_s = clock.SYSTEM.now(), 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic_s(self) -> float:
        return self.steady_s

    def go(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.steady_s += seconds


def _age(service: context.Context, seconds: float) -> None:
    """Every agent was last heard so long before what it was, and what anybody listens since began so long before."""
    with service.store.engine.begin() as connection:
        for query in (
            "UPDATE probing.agent_heartbeat SET received_at = received_at - make_interval(secs => :s)",
            (
                "UPDATE probing.state SET value = to_jsonb((value #>> '{}')::timestamptz - make_interval(secs => :s)) "
                "WHERE key LIKE 'listening %'"
            ),
        ):
            connection.execute(sa.text(query), {"s": seconds})


def _go(service: context.Context, slurm: _MovableClock, seconds: float) -> None:
    slurm.go(seconds)
    _age(service, seconds)


def test_slurm_is_asked_often_about_a_fresh_silence_and_seldom_about_an_old_one(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's picture of 10,000 nodes is large: an agent that is dead on a living node must not fetch it every 5 s."""
    steady = _MovableClock()
    service = dataclasses.replace(service, clock=steady)
    fakes.deliver(service.store, "n0", beat_s=1.0)
    silence.run(service)
    calls = []
    nodes = slurm.nodes
    monkeypatch.setattr(slurm, "nodes", lambda: calls.append(steady.steady_s) or nodes())
    for _ in range(int(silence.RECENT_S / silence.EVERY_S) + 24):
        _go(service, steady, silence.EVERY_S)
        silence.run(service)
    fresh = [at for at in calls if at <= 1000 + silence.OFTEN_S]
    assert len(fresh) >= 0.9 * silence.OFTEN_S / silence.EVERY_S
    assert 10 <= len(calls) - len(fresh) <= 15, "once a minute until 15 minutes, then no more"


@pytest.mark.parametrize("stopped", ["everything", "guest", "clock back"])
def test_nobody_is_silent_while_nobody_listened(
    service: context.Context, stopped: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine stood still for 12 minutes, its steady clock with it, or its clock was set: every agent gets its back-off and two beats."""
    slurm = _MovableClock()
    service = dataclasses.replace(service, clock=slurm)
    for n in range(2):
        fakes.deliver(service.store, f"n{n}", beat_s=10.0)
    assert silence.run(service) == ""
    if stopped == "everything":
        slurm.go(720)
    else:
        slurm.wall += timedelta(seconds=720 if stopped == "guest" else -720)
    _age(service, 720)
    assert silence.run(service) == ""
    assert [r.message for r in caplog.records if r.name == "probing.silence"] == ["silence counts anew"]
    for _ in range(9):
        _go(service, slurm, 5)
        fakes.deliver(service.store, "n0", beat_s=10.0)
        assert silence.run(service) == ""
    _go(service, slurm, 6)
    assert silence.run(service) == "silent: n1"
    assert [e.node for e in service.store.events(kinds=["agent_silent"])] == ["n1"]


def _shown_silent(service: context.Context) -> set[str]:
    """The nodes that views, commands and the doctor call silent."""
    store = service.store
    silences, ages, beats = store.silences_s(), store.heartbeat_ages_s(), store.heartbeats(with_sources=True)
    rows = [{"silent_s": silences[b.node], "beat_s": b.beat_s, "node": b.node} for b in beats]
    by_view = {r["node"] for r in store.rows("SELECT node FROM ops.agent_health WHERE silent", {})}
    by_state = {r["node"] for r in store.rows("SELECT node FROM ops.node_now WHERE state = 'silent'", {})}
    by_doctor = next(
        f.found for f in site_database.judge_agents(beats, ages, silences, fakes.NOW) if f.name == "agents"
    )
    named = {row["node"] for row in rows if node_table.silent(row)}
    assert by_view == by_state == named == {n for n in silences if n in by_doctor}, "one word everywhere"
    return named


@pytest.mark.parametrize("away_s", [15, 600])
def test_after_the_database_was_away_nobody_calls_a_healthy_agent_silent(
    service: context.Context, away_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that were turned away try again within half a minute; who stays away is silent two beats later."""
    slurm = _MovableClock()
    service = dataclasses.replace(service, clock=slurm)
    for node in ("n0", "n1"):
        fakes.deliver(service.store, node, beat_s=10.0)
    silence.run(service)
    with monkeypatch.context() as away:
        away.setattr(service.store, "silences_s", _no_database)
        for _ in range(int(away_s / 5)):
            _go(service, slurm, 5)
            with pytest.raises(errors.DatabaseUnavailable):
                silence.run(service)
    assert silence.run(service) == ""
    for _ in range(9):
        assert _shown_silent(service) == set()
        _go(service, slurm, 5)
        assert silence.run(service) == ""
    fakes.deliver(service.store, "n0", beat_s=10.0)
    _go(service, slurm, 6)
    assert silence.run(service) == "silent: n1"
    _go(service, slurm, 25)
    fakes.deliver(service.store, "n0", beat_s=10.0)
    assert _shown_silent(service) == {"n1"}


@pytest.mark.parametrize(("age_s", "words"), [(15.0, ""), (21.0, "silent: n1")])
def test_silence_has_one_measure(service: context.Context, age_s: float, words: str) -> None:
    """The notice goes by the task, a report by the time of the reading: all call one agent silent at one time."""
    fakes.deliver(service.store, "n1", beat_s=10.0)
    assert silence.run(service) == ""
    _age(service, age_s)
    fakes.deliver(service.store, "n0", beat_s=60.0)
    assert silence.run(service) == words
    assert _shown_silent(service) == ({"n1"} if words else set())
    running = records.JobAttempt(
        cluster=service.cluster, job_id=7, submit_at=fakes.NOW, start_at=fakes.NOW, state="RUNNING", nodes=("n1",)
    )  # fmt: skip
    (beat,) = service.store.heartbeats(["n1"])
    last_beat = dataclasses.replace(beat, at=fakes.NOW)
    lines = node_state.sentences(
        running, [last_beat], [], fakes.NOW, read_at=fakes.NOW + timedelta(seconds=age_s)
    )
    assert ("has not been heard" in lines[0]) is bool(words)


def _no_database(**_: object) -> dict[str, float]:
    raise errors.DatabaseUnavailable("it is being restarted")


def test_a_service_that_begins_with_its_database_calls_nobody_silent(service: context.Context) -> None:
    """After a power cut host, database and service come back together, and agents after them."""
    for node in ("n0", "n1"):
        fakes.deliver(service.store, node, beat_s=10.0)
    _age(service, 300)
    assert silence.run(service) == ""
    assert _shown_silent(service) == set()
    _age(service, 51)
    fakes.deliver(service.store, "n0", beat_s=10.0)
    assert silence.run(service) == "silent: n1"


def test_a_service_that_begins_just_after_its_database_waits_for_the_agents(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One agent came back at once; the other waits before it tries again, and no gap shows that it was turned away."""
    monkeypatch.setattr(service.store, "server_up_s", lambda: 4.0)
    for node in ("n0", "n1"):
        fakes.deliver(service.store, node, beat_s=10.0)
    _age(service, 30)
    fakes.deliver(service.store, "n0", beat_s=10.0)
    assert silence.run(service) == ""
    assert _shown_silent(service) == set()
    _age(service, 51)
    fakes.deliver(service.store, "n0", beat_s=10.0)
    assert silence.run(service) == "silent: n1"


@pytest.mark.parametrize(("up_s", "age_s"), [(3600.0, 30.0), (40.0, 30.0)])
def test_a_service_that_begins_under_a_running_database_waits_for_nobody(
    service: context.Context, monkeypatch: pytest.MonkeyPatch, up_s: float, age_s: float
) -> None:
    """The database was there all the time, or since before the last beat."""
    monkeypatch.setattr(service.store, "server_up_s", lambda: up_s)
    for node in ("n0", "n1"):
        fakes.deliver(service.store, node, beat_s=10.0)
    _age(service, age_s)
    fakes.deliver(service.store, "n0", beat_s=10.0)
    assert silence.run(service) == "silent: n1"


def test_the_age_of_the_databases_server_is_read(service: context.Context) -> None:
    assert service.store.server_up_s() > 0


def test_most_agents_silent_together_are_looked_at_twice(service: context.Context) -> None:
    """The way to us broke, not forty nodes; those that stay silent are told two beats later."""
    slurm = _MovableClock()
    service = dataclasses.replace(service, clock=slurm)
    for n in range(6):
        fakes.deliver(service.store, f"n{n}", beat_s=10.0)
    assert silence.run(service) == ""
    slurm.go(5)
    _age(service, 60)
    assert silence.run(service) == ""
    found = ""
    for _ in range(11):
        _go(service, slurm, 5)
        for n in range(3):
            fakes.deliver(service.store, f"n{n}", beat_s=10.0)
        found = silence.run(service) or found
    assert found == "silent: n3, n4, n5"


def test_accounting_stores_attempts_with_the_gpus_their_own_prolog_saw(service: context.Context) -> None:
    """Two starts of one job: each gets the GPUs of its own Prolog, its number, and the run's key."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    base = int(NOW.timestamp())
    first = fakes.row(7, State="REQUEUED", End=str(base - 1000), NodeList="n2")
    second = fakes.row(
        7,
        Submit=str(base - 1000),
        Eligible=str(base - 1000),
        Start=str(base - 970),
        End=str(base - 500),
        NodeList="n2",
    )
    service.run_slurm.rows = [first, second]
    fakes.deliver(
        service.store, "n2",
        allocations=[holds(7, "GPU-0", at_s=1199, run_key="sft"), holds(7, "GPU-1", at_s=969, restart=1)],
    )  # fmt: skip
    assert accounting.run(service) == "2 attempts"
    one, two = service.store.attempts(job_ids=[7])
    assert (one.attempt, one.gpus, one.run_key) == (1, {"n2": ("GPU-0",)}, "sft")
    assert (two.attempt, two.gpus, two.n_gpus) == (2, {"n2": ("GPU-1",)}, 16)


def test_only_allocations_of_the_jobs_concerned_are_read(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of a large cluster has a hundred thousand; a poll, and a fault, concern a few."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, NodeList="n2")]
    slurm.running = {8: running(8, "n2")}
    allocations = [holds(n, at_s=1199) for n in (6, 7, 8, 9)]
    fakes.deliver(service.store, "n2", xid(), allocations=allocations)
    jobs = fakes.jobs_of_allocations_read(service.store, monkeypatch)
    accounting.run(service)
    assert jobs == {7}
    actions.run(service)
    assert jobs == {7, 8}


def test_a_job_that_never_started_is_an_event_and_no_attempt(service: context.Context) -> None:
    """Once, however often accounting lists it; a job that waits has none, and what ended long ago is read once an hour."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    old = fakes.row_never_started(10, End=str(int(NOW.timestamp()) - 86400))
    waiting = fakes.row_never_started(9, State="PENDING", End="Unknown")
    service.run_slurm.rows = [fakes.row_never_started(8, Reason="Dependency"), waiting]
    assert accounting.run(service) == "0 attempts"
    service.run_slurm.rows.append(old)
    accounting.run(service)
    assert service.store.attempts() == []
    (event,) = service.store.events()
    assert (event.node, event.job_id, event.source, event.kind) == ("", 8, "accounting", "never_started")
    assert (event.detail["cancelled_by"], event.detail["reason"]) == ("alice", "Dependency")
    service.store.remember(f"{accounting.DEEP} c", clock.iso_z(NOW - 2 * accounting.DEEP_EVERY))
    accounting.run(service)
    assert sorted(e.job_id or 0 for e in service.store.events()) == [8, 10]


def test_a_job_that_never_started_is_its_owners(service: context.Context) -> None:
    """A row that slurmdbd has not completed is root's and of no partition: it is waited for, for minutes at most, as the owner reads the event."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    ends = [str(int((NOW - timedelta(seconds=s)).timestamp())) for s in (1, 400)]
    first = {"User": "root", "Account": "", "Partition": "", "JobName": "allocation"}
    service.run_slurm.rows = [
        fakes.row_never_started(n, Submit=end, End=end, **first) for n, end in zip((8, 9), ends, strict=True)
    ]
    accounting.run(service)
    assert [e.job_id for e in service.store.events()] == [9]
    service.run_slurm.rows = [fakes.row_never_started(8, Submit=ends[0], End=ends[0])]
    accounting.run(service)
    assert {e.job_id: e.detail["user"] for e in service.store.events()} == {8: "alice", 9: "root"}


def test_our_own_tests_of_a_node_are_nobodys_attempts(service: context.Context) -> None:
    """A repair's job ends CANCELLED and counts in no figure; another account's of that name does."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    incident_id = uuid.uuid4()
    service.store.open_incident(
        records.RepairIncident(
            incident_id=incident_id, cluster="c", node="n2", drain_id=uuid.uuid4(), reason="probing: xid 79", cause="gpu",
            state="ticket", reservation="", opened_at=NOW, changed_at=NOW,
        )
    )  # fmt: skip
    ours = {"JobName": f"probing-n2-{incident_id.hex[:8]}", "State": "CANCELLED"}
    me = pwd.getpwuid(os.geteuid()).pw_name
    service.run_slurm.rows = [
        fakes.row(7, User=me, **ours),
        fakes.row(8, User="mallory", **ours),
        fakes.row(9, User=me),
    ]
    assert accounting.run(service) == "2 attempts"
    assert sorted(a.job_id for a in service.store.attempts()) == [8, 9]


@pytest.mark.parametrize("account", ["", "hpc-tests"])
def test_a_round_that_a_person_asked_for_is_nobodys_attempt(service: context.Context, account: str) -> None:
    """By its name and an operator, the service's account or the tests' Slurm account; a user's job of that name counts."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.config = dataclasses.replace(
        service.config, diagnostics=settings.DiagnosticsSettings(account=account)
    )
    question = by_hand.DiagnosisRequest(round_id=uuid.uuid4(), names=("n2",))
    nodes = {"n2": view.Node(name="n2", partitions=("gpu",))}
    ours = {"JobName": by_hand.wanted(service.config, nodes, question).name, "State": "CANCELLED"}
    service.run_slurm.rows = [
        fakes.row(7, User="eve", **ours),
        fakes.row(8, User=pwd.getpwuid(os.geteuid()).pw_name, **ours),
        fakes.row(9, User="alice", Account="hpc-tests", **ours),
        fakes.row(10, User="alice", **ours),
        fakes.row(11, User="eve", JobName="probing-diagnose-mine"),
    ]
    accounting.run(service)
    assert sorted(a.job_id for a in service.store.attempts()) == ([10, 11] if account else [9, 10, 11])


def a_test_of(job_id: int, **changes: Any) -> records.DiagnosticResult:
    """What a test found in a job, while `fakes.row` of that job ran."""
    given = {
        "result_id": uuid.uuid4(), "cluster": "c", "round_id": uuid.uuid4(), "node": "n2", "test": "gemm",
        "outcome": records.Outcome.OK, "job_id": job_id, "duration_s": 20.0, "at": ago(900),
    }  # fmt: skip
    return records.DiagnosticResult(**(given | changes))


def test_a_row_that_slurmdbd_has_not_completed_is_no_attempt_yet(service: context.Context) -> None:
    """In its first second a job may be called `allocation` and have no partition; it is read again, for minutes at most."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    just, long_ago = (str(int((NOW - timedelta(seconds=s)).timestamp())) for s in (2, 900))
    first = {"JobName": "allocation", "Partition": "", "State": "RUNNING", "End": "Unknown"}
    service.run_slurm.rows = [
        fakes.row(7, Submit=just, Start=just, **first),
        fakes.row(8, Submit=long_ago, Start=long_ago, **first),
        fakes.row(9, Submit=just, Start=just, **(first | {"Partition": "gpu"})),
    ]
    accounting.run(service)
    assert sorted(a.job_id for a in service.store.attempts()) == [8, 9]


def test_a_job_in_which_a_test_ran_is_ours_whatever_it_is_called(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the job ids of stored tests and of this process; a user's later job of the same id is the user's."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    submit_at = NOW - timedelta(minutes=21)
    submitted = job_steps.SubmittedJob(
        job_id=8, submit_at=submit_at, granted_at=submit_at + timedelta(seconds=5)
    )
    monkeypatch.setattr(job_steps, "SUBMITTED", {8: submitted})
    old = ago(86400)
    service.store.add_results([a_test_of(7), a_test_of(9, at=old), a_test_of(10, cluster="other")])
    service.run_slurm.rows = [fakes.row(n, JobName="allocation", User="root") for n in (7, 8, 9, 10)]
    accounting.run(service)
    assert sorted(a.job_id for a in service.store.attempts()) == [9, 10]


def test_what_was_stored_of_a_test_job_is_taken_away(service: context.Context) -> None:
    """An earlier poll took it for a user's: once it is known to be ours no attempt, verdict or account of it is left."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [
        fakes.row(n, State="FAILED", ExitCode="1:0", JobName="allocation", User="root") for n in (7, 8)
    ]
    accounting.run(service)
    service.store.save_verdicts(
        records.Verdict(
            cluster=a.cluster, job_id=a.job_id, submit_at=a.submit_at, cause="unknown", domain=records.Domain.UNKNOWN, summary="",
            confidence=records.Confidence.UNKNOWN, rules_version="1", made_at=NOW,
        )
        for a in service.store.attempts()
    )  # fmt: skip
    accounts.run(service)
    assert (len(service.store.verdicts()), len(service.store.run_accounts())) == (2, 2)
    service.store.add_results([a_test_of(7)])
    accounting.run(service)
    assert [a.job_id for a in service.store.attempts()] == [8]
    assert [v.job_id for v in service.store.verdicts()] == [8]
    assert [a.run_key for a in service.store.run_accounts()] == ["8"]


def test_a_stored_test_result_takes_no_users_job_away(service: context.Context) -> None:
    """An operator's login may store results with any job's id in them: a user's attempt stays."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, State="FAILED", ExitCode="1:0")]
    service.store.add_results([a_test_of(7)])
    accounting.run(service)
    assert [a.job_id for a in service.store.attempts()] == [7]


def test_a_test_that_found_its_node_taken_is_no_job_that_never_started(service: context.Context) -> None:
    """Its job was cancelled while it waited; a user's of that name is told."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    me = pwd.getpwuid(os.geteuid()).pw_name
    name = {"JobName": "probing-diagnose-0123abcd"}
    service.run_slurm.rows = [fakes.row_never_started(7, User=me, **name), fakes.row_never_started(8, **name)]
    accounting.run(service)
    assert [e.job_id for e in service.store.events()] == [8]


def test_a_name_like_a_tests_does_not_stop_the_poll(service: context.Context) -> None:
    """Slurm does not say who is an operator: such a job is a user's."""
    sacct = service.run_slurm

    def runner(program: str, *arguments: str, **more: Any) -> bytes:
        if program == "sacctmgr":
            raise errors.SlurmUnavailable("sacctmgr: refused")
        return sacct(program, *arguments, **more)

    assert isinstance(sacct, fakes.Sacct)
    sacct.rows = [fakes.row(7, User="eve", JobName="probing-diagnose-0123abcd")]
    service.run_slurm = runner
    assert accounting.run(service) == "1 attempts"


@pytest.mark.parametrize(
    "ended",
    [{"State": "RUNNING", "End": "Unknown"}, {"State": "REQUEUED", "End": str(int(ago(40).timestamp()))}],
)
def test_a_start_that_accounting_does_not_list_yet_gives_the_one_before_it_nothing(
    service: context.Context, ended: dict[str, str]
) -> None:
    """slurmctld was restarted: its word of the next start reaches slurmdbd later than the Prolog's record of it. By the count an attempt knows its own evidence."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, NodeList="n2", AllocTRES="gres/gpu=1", **ended)]
    fakes.deliver(
        service.store, "n2", allocations=[holds(7, "GPU-0", at_s=1199), holds(7, "GPU-1", at_s=30, restart=1)]
    )
    accounting.run(service)
    (found,) = service.store.attempts()
    assert (found.restart_count, found.gpus) == (0, {"n2": ("GPU-0",)})


def test_a_start_that_the_prolog_refused_is_not_counted_as_the_next(service: context.Context) -> None:
    """Its Epilog has the count of the start to come, and the mail about it, which Slurm numbers rightly, found no start: it never came."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, NodeList="n2", State="REQUEUED", End=str(int(ago(1199).timestamp())))]  # fmt: skip
    of_epilog = {"prolog_seen": False}
    fakes.deliver(service.store, "n2", allocations=[holds(7, "GPU-0", at_s=1199, restart=1, **of_epilog)])  # fmt: skip
    accounting.run(service)
    (found,) = service.store.attempts()
    assert (found.attempt, found.n_restarts) == (1, 0)


def test_a_node_that_could_not_name_a_log_is_told_the_numbers_once(service: context.Context) -> None:
    """An array task's Prolog is not told which it is by older releases; accounting knows, and the agent reads then."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, JobID="6_5", JobIDRaw="7", NodeList="n2")]
    hostile: list[Any] = [None, 3, {"unnamed": "yes"}, {"unnamed": True, "path": "arr-%A_%a.out"}]
    allocation = holds(7, "GPU-0", at_s=1199, logs=hostile)
    fakes.deliver(service.store, "n2", allocations=[allocation])
    accounting.run(service)
    accounting.run(service)
    from probing_cluster.db import delivery

    (calls,) = delivery.Delivery(service.store.connection_uri(), "c", "n2").deliver(events=[]).requests
    assert (calls.verb, calls.job_id) == ("collect", 7)
    assert {k: calls.detail[k] for k in ("array_job_id", "array_task_id", "restart_count")} == {
        "array_job_id": 6,
        "array_task_id": 5,
        "restart_count": 0,
    }


def test_a_later_poll_goes_on_counting(service: context.Context) -> None:
    """An answer that holds only the latest start still numbers it after the ones already stored."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    base = int(NOW.timestamp())
    service.run_slurm.rows = [fakes.row(7, State="REQUEUED")]
    accounting.run(service)
    service.run_slurm.rows = [
        fakes.row(7, Submit=str(base - 500), Start=str(base - 400), End=str(base - 300))
    ]
    accounting.run(service)
    assert [a.attempt for a in service.store.attempts(job_ids=[7])] == [1, 2]


def _window_starts(service: context.Context) -> list[datetime]:
    """From when the latest polls asked for attempts, without the questions about named jobs."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    windows = [c for c in service.run_slurm.calls if "-j" not in c and "-s" not in c]
    return [datetime.fromisoformat(f"{c[c.index('-S') + 1]}+00:00") for c in windows]


def _long_job(job_id: int, **changes: str) -> dict[str, str]:
    """A job that began six days ago, and runs unless `changes` say otherwise."""
    start = str(int((NOW - timedelta(days=6)).timestamp()))
    return fakes.row(
        job_id,
        **{"State": "RUNNING", "Submit": start, "Eligible": start, "Start": start, "End": "Unknown"}
        | changes,
    )


def _since_now(**before: float) -> str:
    return str(int((NOW - timedelta(**before)).timestamp()))


def test_a_job_of_many_days_does_not_lengthen_the_poll(service: context.Context) -> None:
    """sacct lists what runs in any window: its end is seen when only the last minutes are asked for."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [_long_job(7)]
    accounting.run(service)
    assert len(_window_starts(service)) == 8
    service.run_slurm.calls.clear()
    assert accounting.run(service) == "1 attempts"
    assert _window_starts(service) == [NOW - accounting.OVERLAP]
    service.run_slurm.rows = [_long_job(7, State="FAILED", ExitCode="1:0", End=_since_now(seconds=5))]
    accounting.run(service)
    (attempt,) = service.store.attempts(job_ids=[7])
    assert (attempt.state, attempt.end_at) == ("FAILED", NOW - timedelta(seconds=5))


def test_an_end_that_slurmdbd_hears_late_is_asked_for_by_its_job_once(service: context.Context) -> None:
    """It lies before the window, so the poll lists the job no longer; a job that accounting has lost is not asked for again and again."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [_long_job(7), _long_job(8)]
    accounting.run(service)
    service.run_slurm.rows = [_long_job(7, State="FAILED", ExitCode="1:0", End=_since_now(hours=3))]
    service.run_slurm.calls.clear()
    for _ in range(3):
        accounting.run(service)
    assert [c[c.index("-j") + 1] for c in service.run_slurm.calls if "-j" in c] == ["7,8"]
    known = {a.job_id: (a.state, a.end_at) for a in service.store.attempts()}
    assert known == {7: ("FAILED", NOW - timedelta(hours=3)), 8: ("RUNNING", None)}


def test_marks_of_a_clock_that_was_ahead_keep_nothing_unread(service: context.Context) -> None:
    """The clock was a year ahead for a moment: what ended meanwhile is read now, not in a year."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [_long_job(7, State="FAILED", ExitCode="1:0", End=_since_now(hours=3))]
    for mark in (accounting.CURSOR, accounting.DEEP):
        service.store.remember(f"{mark} c", clock.iso_z(NOW + timedelta(days=365)))
    accounting.run(service)
    assert [(a.job_id, a.state) for a in service.store.attempts()] == [(7, "FAILED")]
    for mark in (accounting.CURSOR, accounting.DEEP):
        assert service.store.recall(f"{mark} c") == clock.iso_z(NOW)


def test_after_days_without_the_service_the_poll_goes_on_from_its_mark(service: context.Context) -> None:
    """What ended meanwhile is stored by the next poll, in windows of a day."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    mark = NOW - timedelta(days=3)
    service.store.remember(f"{accounting.CURSOR} c", clock.iso_z(mark))
    service.store.remember(f"{accounting.DEEP} c", clock.iso_z(NOW))
    ends = {7: _since_now(days=2), 8: _since_now(hours=1)}
    service.run_slurm.rows = [_long_job(n, State="COMPLETED", End=end) for n, end in ends.items()]
    assert accounting.run(service) == "2 attempts"
    assert _window_starts(service)[0] == mark - accounting.OVERLAP
    assert [a.job_id for a in service.store.attempts(ended=True)] == [7, 8]


def test_after_weeks_without_the_service_nothing_of_them_is_lost(service: context.Context) -> None:
    """Longer than `slurm.history_days`: ends, whole jobs and their runs' accounts are there, and the poll after that asks for minutes."""
    sacct, store = service.run_slurm, service.store
    assert isinstance(sacct, fakes.Sacct)
    mark = NOW - timedelta(days=30)
    begin, middle = (str(int((mark + timedelta(days=n)).timestamp())) for n in (-20, 3))
    sacct.rows = [fakes.row(7, State="RUNNING", Submit=begin, Eligible=begin, Start=begin, End="Unknown")]
    service.clock = SetClock(mark)
    accounting.run(service)
    service.clock = SetClock(NOW)
    ended = str(int(middle) + 3600)
    sacct.rows[0].update(State="COMPLETED", End=middle)
    sacct.rows.append(
        fakes.row(8, Submit=middle, Eligible=middle, Start=middle, State="NODE_FAIL", End=ended)
    )
    sacct.calls.clear()
    accounting.run(service)
    assert _window_starts(service)[0] == mark - accounting.OVERLAP
    known = {a.job_id: (a.state, str(int(a.end_at.timestamp()))) for a in store.attempts() if a.end_at}
    assert known == {7: ("COMPLETED", middle), 8: ("NODE_FAIL", ended)}
    accounts.run(service)
    assert {a.run_key: a.end_at for a in store.run_accounts()} == {
        a.run_key or str(a.job_id): a.end_at for a in store.attempts()
    }
    sacct.calls.clear()
    accounting.run(service)
    assert _window_starts(service) == [NOW - accounting.OVERLAP]
    assert not [c for c in sacct.calls if "-j" in c]


def test_a_day_of_long_ago_that_sacct_cannot_list_keeps_no_later_day(
    service: context.Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such days are passed over, also in a row, and named in the log; where sacct answers nothing at all, none is."""
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    mark, good = NOW - timedelta(days=20), str(int((NOW - timedelta(days=12)).timestamp()))
    bad = [(NOW - timedelta(days=n)).strftime("%Y-%m-%dT%H:%M:%S") for n in (19, 17)]
    service.store.remember(f"{accounting.CURSOR} c", clock.iso_z(mark))
    sacct.rows = [fakes.row(7, Submit=good, Eligible=good, Start=good, End=good)]
    away = True

    def busy(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        given = dict(itertools.pairwise(arguments))
        if away or (given.get("-S", "9") < bad[1] and given.get("-E", "") > bad[0]):
            raise commands.SlurmTimedOut("sacct did not end within 30 s")
        return sacct(program, *arguments, environment=environment)

    monkeypatch.setattr(service, "run_slurm", busy)
    with pytest.raises(errors.SlurmUnavailable):
        accounting.recent(service)
    assert service.store.recall(f"{accounting.CURSOR} c") == clock.iso_z(mark)
    away = False
    assert accounting.recent(service) == "1 attempts"
    assert [a.job_id for a in service.store.attempts()] == [7]
    assert service.store.recall(f"{accounting.CURSOR} c") == clock.iso_z(NOW)
    assert {line.message.partition(" is not read")[0] for line in caplog.records} == {
        f"accounting of {clock.iso_z(since)} to {clock.iso_z(since + timedelta(days=1))}"
        for since in (mark - accounting.OVERLAP + timedelta(days=n) for n in (1, 2, 3))
    }


def test_an_outage_in_the_middle_of_old_days_goes_on_where_it_was(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored of weeks without the service is not read again because slurmdbd went away meanwhile."""
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    service.store.remember(f"{accounting.CURSOR} c", clock.iso_z(NOW - timedelta(days=20)))
    last = (NOW - timedelta(days=10)).strftime("%Y-%m-%dT%H:%M:%S")

    def away(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        if dict(itertools.pairwise(arguments)).get("-E", "") > last:
            raise commands.SlurmAway("slurmdbd: Connection refused")
        return sacct(program, *arguments, environment=environment)

    monkeypatch.setattr(service, "run_slurm", away)
    with pytest.raises(errors.SlurmUnavailable):
        accounting.recent(service)
    sacct.calls.clear()
    last = "9"
    accounting.recent(service)
    monkeypatch.setattr(service, "run_slurm", sacct)
    assert timedelta(days=10) <= NOW - _window_starts(service)[0] <= timedelta(days=11, minutes=10)


def test_ends_of_long_jobs_are_asked_for_in_one_question(service: context.Context) -> None:
    """However long ago they began: a job of weeks whose end slurmdbd heard late would run for ever in our rows."""
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    begin = _since_now(days=40)
    running = {"State": "RUNNING", "Submit": begin, "Eligible": begin, "Start": begin, "End": "Unknown"}
    sacct.rows = [fakes.row(n, **running) for n in (7, 8, 9)]
    accounting.run(service)
    for row in sacct.rows:
        row.update(State="FAILED", ExitCode="1:0", End=_since_now(hours=3))
    sacct.calls.clear()
    accounting.run(service)
    assert [c[c.index("-j") + 1] for c in sacct.calls if "-j" in c] == ["7,8,9"]
    assert [a.state for a in service.store.attempts()] == ["FAILED"] * 3


def test_after_an_outage_the_whole_history_is_asked_for_soon(service: context.Context) -> None:
    """slurmctld hands slurmdbd what happened meanwhile; a job that began and ended within that time is in no later window."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    accounting.run(service)
    service.run_slurm.down = True
    service.clock = SetClock(NOW + timedelta(minutes=30))
    with pytest.raises(errors.SlurmUnavailable):
        accounting.run(service)
    service.run_slurm.down = False
    accounting.run(service)
    service.run_slurm.rows = [fakes.row(7, End=_since_now(minutes=1))]
    for minutes in (35, 40, 45):
        service.clock = SetClock(NOW + timedelta(minutes=minutes))
        accounting.run(service)
    assert [a.job_id for a in service.store.attempts()] == [7]


def test_a_day_that_sacct_cannot_list_costs_one_read_an_hour(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is listed is stored; polls go on, and the history is asked for again after an hour, not at each of them."""
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    days = {n: _since_now(days=n, hours=1) for n in (2, 6)}
    sacct.rows = [
        fakes.row(n, Submit=at, Eligible=at, Start=at, End=str(int(at) + 600)) for n, at in days.items()
    ]
    bad_day = (NOW - timedelta(days=4)).strftime("%Y-%m-%dT%H:%M:%S")

    def busy(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        given = dict(itertools.pairwise(arguments))
        if given.get("-S", "9") <= bad_day < given.get("-E", ""):
            raise commands.SlurmTimedOut("sacct did not end within 30 s")
        return sacct(program, *arguments, environment=environment)

    monkeypatch.setattr(service, "run_slurm", busy)
    with pytest.raises(errors.SlurmUnavailable, match="did not end"):
        accounting.run(service)
    assert [a.job_id for a in service.store.attempts()] == [6, 2]
    n_calls = len(sacct.calls)
    assert accounting.run(service) == "0 attempts"
    assert len(sacct.calls) == n_calls + 2
    service.clock = SetClock(NOW + accounting.DEEP_EVERY + timedelta(minutes=1))
    service.store.remember(f"{accounting.CURSOR} c", clock.iso_z(service.clock.now()))
    with pytest.raises(errors.SlurmUnavailable, match="did not end"):
        accounting.run(service)


def test_the_whole_history_is_stored_day_by_day(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than one day's attempts are held at once, and starts of a job on different days are counted together."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    days = {n: _since_now(days=n, hours=1) for n in (2, 4)}
    service.run_slurm.rows = [
        fakes.row(7, Submit=at, Eligible=at, Start=at, End=str(int(at) + 600)) for at in days.values()
    ]
    stored: list[int] = []
    upsert = service.store.upsert_attempts

    def counted(attempts: Iterable[records.JobAttempt]) -> None:
        attempts = list(attempts)
        stored.append(len(attempts))
        upsert(attempts)

    monkeypatch.setattr(service.store, "upsert_attempts", counted)
    assert accounting.run(service) == "2 attempts"
    assert sorted(stored) == [0, 0, 0, 0, 0, 0, 1, 1]
    assert [(a.attempt, a.submit_at) for a in service.store.attempts(job_ids=[7])] == [
        (1, NOW - timedelta(days=4, hours=1)),
        (2, NOW - timedelta(days=2, hours=1)),
    ]


def test_a_poll_out_of_turn_leaves_another_poll_its_work(service: context.Context) -> None:
    """Both would read and write the same rows."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    accounting.run(service)
    service.run_slurm.calls.clear()
    with service.try_lock("accounting"):
        assert accounting.recent(service) == ""
    assert service.run_slurm.calls == []
    assert accounting.recent(service) == "0 attempts"


def test_a_backlog_is_worked_off_without_a_pause(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one pass may not hold, the next takes at once; a service that stops ends after the pass it is in."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    monkeypatch.setattr(attribution, "_MOST_AT_ONCE", 2)
    service.run_slurm.rows = [fakes.row(n, State="FAILED", ExitCode="1:0") for n in range(1, 8)]
    accounting.run(service)
    service.stopping.set()
    assert attribution.run(service).startswith("2 attempts judged")
    service.stopping.clear()
    assert attribution.run(service).startswith("5 attempts judged")
    assert unjudged.attempts(service.store) == []


def test_a_backlog_of_many_nodes_is_worked_off_in_larger_passes(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a first full pass as many attempts are judged at once as there are agents."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    monkeypatch.setattr(attribution, "_MOST_AT_ONCE", 2)
    judge, limits = attribution.attribute.attribute, []

    def recorded(*args: Any, **given: Any) -> Any:
        limits.append(given["limit"])
        return judge(*args, **given)

    monkeypatch.setattr(attribution.attribute, "attribute", recorded)
    monkeypatch.setattr(type(service.store), "heartbeat_ages_s", lambda *_, **__: dict.fromkeys("abcd", 1.0))
    service.run_slurm.rows = [fakes.row(n, State="FAILED", ExitCode="1:0") for n in range(1, 8)]
    accounting.run(service)
    assert attribution.run(service).startswith("7 attempts judged")
    assert limits == [2, 4, 4]


def test_an_ended_attempt_is_judged_and_its_run_accounted(service: context.Context) -> None:
    """From sacct's row and the kernel's line to a verdict and an account that adds up."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, State="NODE_FAIL", ExitCode="1:0")]
    died = NOW - timedelta(minutes=10)
    fakes.deliver(
        service.store, "n2", xid(at=died - timedelta(seconds=4), observed_at=died), allocations=[holds(7)]
    )
    accounting.run(service)
    assert attribution.run(service).startswith("1 attempts judged")
    assert accounts.run(service) == "1 run accounts"
    assert (attribution.run(service), accounts.run(service)) == ("", "")
    (verdict,) = service.store.verdicts(job_ids=[7])
    assert verdict.domain is records.Domain.HARDWARE
    account = service.store.run_account("7", user="alice")
    assert account is not None
    parts = (
        "queued_s",
        "productive_s",
        "lost_to_replay_s",
        "restart_s",
        "checkpoint_s",
        "suspended_s",
        "idle_s",
    )
    assert sum(getattr(account, p) for p in parts) == pytest.approx(account.wall_s)


def test_last_words_that_come_late_make_the_account_measured(service: context.Context) -> None:
    """The nodes tell of first step and checkpoints after the run's end was accounted: once more, then no more."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7)]
    accounting.run(service)
    assert (accounts.run(service), accounts.run(service)) == ("1 run accounts", "")
    before = service.store.run_account("7", user="alice")
    progress = [
        xid(n, kind=kind, code=None, source="probe", severity=records.Severity.INFO, job_id=7, at=ago(at_s))
        for n, kind, at_s in ((11, "first_step", 1100), (12, "last_progress", 700))
    ]
    fakes.deliver(service.store, "n2", *progress, faults=False)
    service.clock.at = datetime.now(UTC) + timedelta(seconds=1)
    assert (accounts.run(service), accounts.run(service)) == ("1 run accounts", "")
    after = service.store.run_account("7", user="alice")
    assert before is not None
    assert after is not None
    assert (before.measured, after.measured, after.restart_s) == (False, True, 100)


def test_an_account_made_between_the_end_and_accountings_word_of_it_is_made_again(
    service: context.Context,
) -> None:
    """Until sacct tells of it an ended attempt seems to run; the account made meanwhile is not the last."""
    assert isinstance(service.run_slurm, fakes.Sacct)
    service.run_slurm.rows = [fakes.row(7, State="RUNNING", End="Unknown")]
    accounting.run(service)
    assert (accounts.run(service), accounts.run(service)) == ("1 run accounts", "")
    service.run_slurm.rows = [fakes.row(7, State="FAILED", ExitCode="1:0")]
    accounting.run(service)
    assert (accounts.run(service), accounts.run(service)) == ("1 run accounts", "")
    account = service.store.run_account("7", user="alice")
    (attempt,) = service.store.attempts(job_ids=[7])
    assert account is not None
    assert account.end_at == attempt.end_at < NOW


def test_a_task_that_breaks_is_recorded_and_the_next_goes_on(
    service: context.Context, caplog: pytest.LogCaptureFixture
) -> None:
    """Isolation: an error of ours is counted, logged once, and ends nothing."""

    def broken() -> str:
        raise ZeroDivisionError("oops")

    for _ in range(3):
        journal.one_pass(service.journal, "x", broken, service.clock)
    journal.one_pass(service.journal, "x", lambda: "fine", service.clock)
    found = service.journal.passes()["x"]
    assert (found.n_failed, found.n_ok, found.outcome, found.message) == (3, 1, "ok", "fine")
    assert [r.fields["said"] for r in caplog.records if hasattr(r, "fields")] == ["oops", "fine"]  # type: ignore[attr-defined]


def test_every_task_file_is_registered_once() -> None:
    """One file, one line in the register, a name and a sentence each."""
    files = {p.stem for p in Path(tasks.__file__).parent.glob("*/*.py")} - {"__init__"}
    assert {t.name for t in tasks.REGISTER} == files
    assert all(t.meaning and (t.every_s or t.daily_at) for t in tasks.REGISTER)


def test_maintenance_makes_the_months_ahead(service: context.Context) -> None:
    """The first round makes partitions, the second finds nothing to do."""
    assert "partitions made" in maintenance.run(service)
    assert maintenance.run(service) == ""


def test_a_clock_that_leaps_ahead_deletes_nothing_for_hours(service: context.Context) -> None:
    """A host that starts with the clock a year ahead would drop every month; set right in time, nothing is lost."""
    fakes.deliver(service.store, "n2", xid())
    maintenance.run(service)
    n_kept = len(service.store.events())
    assert n_kept == 1
    ahead = NOW + timedelta(days=1000)
    for clock_at in (ahead, ahead + timedelta(hours=5), NOW + timedelta(hours=6)):
        service.clock = SetClock(clock_at)
        maintenance.run(service)
        assert len(service.store.events()) == n_kept
    for hours in (0, 5, 7):  # it is true: the service was stopped for years
        service.clock = SetClock(ahead + timedelta(hours=hours))
        kept = "nothing deleted" in maintenance.run(service)
        assert (kept, len(service.store.events())) == ((hours < 6), n_kept if hours < 6 else 0)


def test_ended_months_are_exported_once_and_only_then_may_be_dropped(
    service: context.Context, tmp_path: Path
) -> None:
    """Without a history directory nothing is written; with one, each ended month once, and its name is known."""
    ended = NOW - timedelta(days=70)
    service.store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c",
                job_id=7,
                submit_at=ended,
                start_at=ended,
                end_at=ended,
                state="FAILED",
                nodes=("n1",),
                run_key="7",
            )
        ]
    )
    assert (export.run(service), export.complete(service)) == ("", None)
    given = settings.AttributionSettings(history_directory=str(tmp_path / "history"))
    service.config = dataclasses.replace(service.config, attribution=given)
    assert f"{ended:%Y-%m}" in export.run(service)
    assert export.run(service) == ""
    complete = export.complete(service)
    assert complete is not None
    assert complete([f"{ended:%Y-%m}", "2020-01"]) == {f"{ended:%Y-%m}"}


def test_a_month_with_late_events_is_exported_again_before_it_is_dropped(
    service: context.Context, tmp_path: Path
) -> None:
    """The hourly maintenance leaves it until the night's export has them."""
    at = NOW - timedelta(days=70)
    month = f"{at:%Y-%m}"
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=at, start_at=at, end_at=at, state="FAILED", run_key="7"
    )
    service.store.upsert_attempts([attempt])

    def stored(number: int, days_ago: float) -> None:
        event = records.HealthEvent(
            event_id=uuid.UUID(int=number), cluster="c", node="n1", at=at, observed_at=at, kind="xid",
            code="79", severity=records.Severity.HIGH, source="kernel", message="",
        )  # fmt: skip
        bulk.load_events(service.store.connection_uri(), [event])
        given = {"id": event.event_id, "at": NOW - timedelta(days=days_ago)}
        with service.store.engine.begin() as connection:
            query = "UPDATE probing.event_key SET received_at = :at WHERE event_id = :id"
            connection.execute(sa.text(query), given)

    stored(1, days_ago=69)
    given = settings.AttributionSettings(history_directory=str(tmp_path / "history"))
    service.config = dataclasses.replace(service.config, attribution=given)
    service.clock = SetClock(NOW - timedelta(days=20))
    assert "partitions made" in maintenance.run(service)
    assert month in export.run(service)
    short = settings.DatabaseSettings(retention_days=5)
    service.config = dataclasses.replace(service.config, database=short)
    stored(2, days_ago=10)
    service.clock = SetClock(NOW)
    service.store.remember(maintenance.MARK, clock.iso_z(NOW))
    assert "dropped" not in maintenance.run(service)
    assert export.run(service).endswith(f"exported again, with late events: {month}")
    assert "1 partitions dropped" in maintenance.run(service)
    found = pq.ParquetDataset(tmp_path / "history" / "events").read()["event_id"].to_pylist()
    assert sorted(found) == sorted(str(uuid.UUID(int=n)) for n in (1, 2))


def test_an_error_of_permission_is_a_failure_not_an_absence(service: context.Context) -> None:
    """Only the database or Slurm being away is waited for; everything else is ours to fix."""

    def refused() -> str:
        raise errors.NotPermitted("no right")

    assert journal.one_pass(service.journal, "x", refused, service.clock).outcome == "failed"


@pytest.mark.parametrize("known_s", [None, 90.0, -1e8], ids=["no time", "a time", "a time to come"])
def test_a_failed_prolog_is_at_slurms_time_of_the_drain(
    service: context.Context, slurm: fakes.FakeSlurm, known_s: float | None
) -> None:
    """Where Slurm tells none, or one to come, when it was first seen, however often it is looked at."""
    now = service.clock.now()
    at = None if known_s is None else now - timedelta(seconds=known_s)
    slurm.state["n1"] = dataclasses.replace(
        slurm.state["n1"], states=frozenset({"IDLE", "DRAIN"}), reason="Prolog error", reason_at=at
    )
    drained.run(service)
    assert isinstance(service.clock, SetClock)
    service.clock.at = now + timedelta(seconds=10)
    assert drained.run(service) == ""
    # Forgotten meanwhile, as after a look at which Slurm showed another reason.
    service.store.save_slurm_drains("c", [], ["n1"])
    drained.run(service)
    found = service.store.events(since=now - timedelta(hours=1), kinds=["slurmd"], cluster="c")
    assert [e.at for e in found] == [at if at and at < now else now]


@pytest.mark.parametrize(
    ("line", "kept"), [(b"OverTimeLimit = 15 min\n", 900.0), (b"OverTimeLimit = UNLIMITED\n", -1.0)]
)
def test_a_poll_keeps_slurms_over_time_limit(
    service: context.Context, monkeypatch: pytest.MonkeyPatch, line: bytes, kept: float
) -> None:
    """What accounting shows running counts no longer than limit and OverTimeLimit: the database knows both."""
    sacct = service.run_slurm

    def answer(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        return line if program == "scontrol" else sacct(program, *arguments, environment=environment)

    monkeypatch.setattr(service, "run_slurm", answer)
    accounting.run(service)
    (row,) = service.store.rows("SELECT probing.over_time_limit() AS found", {})
    assert row["found"] == {"c": kept}
