"""What the policy decides from: how old an event may be after an outage of Slurm."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import pytest
import test_tasks

from probing_cluster.attribution.passes import node_clocks
from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service import picture
from probing_cluster.control_plane.service.tasks.nodes import actions
from probing_cluster.core import records
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes
from tests.set_clock import SetClock

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _right_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests' clock runs ahead of the database's, which would take the nodes' clocks for wrong."""
    monkeypatch.setattr(node_clocks, "read", lambda *_: node_clocks.NodeClocks())


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize("since_end_s", [10, 1000])
def test_a_fault_of_an_outage_is_acted_on_after_it(
    since_end_s: float, stands: bool, service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """A GPU lost while slurmctld was away for an hour is drained once it answers, if the agent still sees it."""
    now = fakes.NOW
    lost_at = now - HOUR + timedelta(seconds=60)
    end = now - timedelta(seconds=since_end_s)
    service.journal.note_slurm("nodes", now - HOUR, commands.SlurmAway("Unable to contact slurm controller"))
    service.journal.note_slurm("nodes", end, None)
    fakes.deliver(service.store, "n2", test_tasks.xid(at=lost_at, observed_at=lost_at), faults=stands)
    actions.run(service)
    assert [act[0] for act in slurm.acts] == (["drain"] if stands else [])


def test_answers_to_other_questions_do_not_shorten_the_outage(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """For an hour squeue times out, and scontrol lists the nodes all the while."""
    now, away = fakes.NOW, commands.SlurmAway("squeue did not end within 30 s")
    lost_at = now - HOUR + timedelta(seconds=60)
    for minutes in range(60, 0, -1):
        at = now - timedelta(minutes=minutes)
        service.journal.note_slurm("jobs", at, away)
        service.journal.note_slurm("nodes", at, None)
    service.journal.note_slurm("jobs", now, None)
    fakes.deliver(service.store, "n2", test_tasks.xid(at=lost_at, observed_at=lost_at))
    actions.run(service)
    assert [act[0] for act in slurm.acts] == ["drain"]


def test_a_fault_of_an_outage_is_a_reason_to_ask_again(service: context.Context) -> None:
    """Nobody else may ask this kind of question, and then its outage would never end."""
    lost_at = fakes.NOW - HOUR / 2
    fakes.deliver(service.store, "n2", test_tasks.xid(at=lost_at, observed_at=lost_at))
    service.journal.note_slurm("jobs", fakes.NOW - HOUR, commands.SlurmAway("squeue did not end within 30 s"))
    assert len(picture.waiting(service).events) == 1


def test_an_old_event_whose_fault_has_ended_is_history(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """An event of an hour ago that the agent no longer confirms causes no drain."""
    lost_at = fakes.NOW - HOUR
    fakes.deliver(service.store, "n2", test_tasks.xid(at=lost_at, observed_at=lost_at), faults=False)
    actions.run(service)
    assert slurm.acts == []


def test_a_node_that_slurmctld_has_not_heard_of_yet_has_no_decision(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """For a second after slurmctld's start nodes are UNKNOWN: nothing is recorded, and the drain follows."""
    idle = slurm.state["n2"]
    slurm.state["n2"] = dataclasses.replace(idle, states=frozenset({"UNKNOWN"}))
    fakes.deliver(service.store, "n2", test_tasks.xid())
    actions.run(service)
    assert service.store.drains() == []
    slurm.state["n2"] = idle
    actions.run(service)
    assert [act[0] for act in slurm.acts] == ["drain"]


def test_one_node_that_slurm_never_answers_about_leaves_the_others_their_drain(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass ends with the error, after the other node was drained."""
    drain = slurm.drain

    def gone(node: str, *given: Any) -> Any:
        if node == "n1":
            raise commands.SlurmAway("scontrol did not end within 30 s")
        return drain(node, *given)

    monkeypatch.setattr(slurm, "drain", gone)
    for at, node in enumerate(("n1", "n2"), 1):
        fakes.deliver(service.store, node, test_tasks.xid(at, node))
    with pytest.raises(commands.SlurmAway):
        actions.run(service)
    assert [act[:2] for act in slurm.acts] == [("drain", "n2")]


def test_while_slurm_is_away_no_pass_reads_all_that_was_reported_since(service: context.Context) -> None:
    """A pass a second would read days of events; what is fresh anyway is read."""
    away = commands.SlurmAway("Unable to contact slurm controller")
    for at in (fakes.NOW - HOUR, fakes.NOW - timedelta(seconds=10)):
        service.journal.note_slurm("nodes", at, away)
    fakes.deliver(
        service.store, "n2", test_tasks.xid(at=fakes.NOW - HOUR / 2, observed_at=fakes.NOW - HOUR / 2)
    )
    assert picture.waiting(service).events == ()
    service.journal.note_slurm("nodes", fakes.NOW, None)
    assert len(picture.waiting(service).events) == 1


@pytest.fixture
def looks(slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that Slurm is asked for all its nodes."""
    made: list[str] = []
    nodes = slurm.nodes

    def counted() -> Any:
        made.append("nodes")
        return nodes()

    monkeypatch.setattr(slurm, "nodes", counted)
    return made


def _passes(service: context.Context, *events: records.HealthEvent, n: int, node: str = "n2") -> None:
    """So many passes, one every five seconds, in which the node's agent goes on confirming these faults."""
    for _ in range(n):
        service.clock = SetClock(service.clock.now() + timedelta(seconds=5))
        fakes.deliver(service.store, node, *events, at=service.clock.now())
        actions.run(service)


@pytest.mark.parametrize("observe_only", [False, True])
def test_what_a_drain_has_answered_asks_slurm_once_a_minute(
    service: context.Context, slurm: fakes.FakeSlurm, looks: list[str], observe_only: bool
) -> None:
    """A drained node whose fault stands is the commonest sight; its event is fresh for minutes, its fault stands for days."""
    policy = dataclasses.replace(service.config.policy, observe_only=observe_only)
    service.config = dataclasses.replace(service.config, policy=policy)
    event = test_tasks.xid()
    _passes(service, event, n=8)
    assert [d.state for d in service.store.drains()] == ["simulated" if observe_only else "done"]
    looks.clear()
    _passes(service, event, n=36)
    assert len(looks) == 3
    service.clock = SetClock(fakes.NOW + timedelta(days=9))
    _passes(service, event, n=1)
    looks.clear()
    _passes(service, event, n=12)
    assert len(looks) == (0 if observe_only else 1)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_new_fault_is_acted_on_at_once_beside_one_that_is_answered(
    service: context.Context, slurm: fakes.FakeSlurm, node: str
) -> None:
    """On another node, or on the same after a person put it back: the first pass drains."""
    old = test_tasks.xid()
    _passes(service, old, n=10)
    idle = dataclasses.replace(slurm.state["n2"], states=frozenset({"IDLE"}), reason="")
    slurm.state["n2"] = idle
    _passes(service, old, n=3)
    slurm.acts.clear()
    now = service.clock.now()
    new = test_tasks.xid(2, node, at=now, observed_at=now, device="gpu5", gpu_uuid="GPU-5")
    _passes(service, new, n=1, node=node)
    assert [act[:2] for act in slurm.acts] == [("drain", node)]


def test_a_fault_that_begins_anew_after_its_drain_was_lifted_is_acted_on_at_once(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The kernel's repeated line is one event; the agent says since when the fault stands."""
    event = test_tasks.xid()
    _passes(service, event, n=14)
    (drain,) = service.store.drains()
    slurm.resume("n2")
    service.store.update_drain(drain.drain_id, state="resumed", ended_at=service.clock.now())
    slurm.acts.clear()
    _passes(service, event, n=2)
    assert slurm.acts == []
    _passes(service, dataclasses.replace(event, at=service.clock.now()), n=1)
    assert [act[:2] for act in slurm.acts] == [("drain", "n2")]


def test_an_act_that_failed_is_tried_again_as_before(
    service: context.Context, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain was carried out, the requeue was not."""
    slurm.running[7] = test_tasks.running(7, "n2")
    event = test_tasks.xid()
    fakes.deliver(service.store, "n2", allocations=[test_tasks.holds(7)])
    with monkeypatch.context() as patched:
        patched.setattr(slurm, "requeue", lambda _job: slurm_nodes.Outcome(state="failed"))
        _passes(service, event, n=14)
    assert ("requeue", "7") not in slurm.acts
    _passes(service, event, n=7)
    assert ("requeue", "7") in slurm.acts


def test_a_job_whose_gpus_are_heard_of_late_is_requeued_then(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """Its Prolog's word comes after the drain."""
    slurm.running[7] = test_tasks.running(7, "n2")
    event = test_tasks.xid()
    _passes(service, event, n=14)
    fakes.deliver(service.store, "n2", event, allocations=[test_tasks.holds(7)], at=service.clock.now())
    _passes(service, event, n=1)
    assert ("requeue", "7") in slurm.acts


def test_the_last_word_of_a_silent_agent_asks_nothing(service: context.Context, looks: list[str]) -> None:
    """No decision rests on it; when the agent is heard again, its faults count."""
    old = test_tasks.xid(at=fakes.NOW - HOUR, observed_at=fakes.NOW - HOUR)
    fakes.deliver(service.store, "n2", old)
    test_tasks._age(service, 3600)
    service.clock = SetClock(fakes.NOW + timedelta(seconds=70))
    actions.run(service)
    assert looks == []
    _passes(service, old, n=1)
    assert looks == ["nodes"]


def test_a_file_server_that_hangs_leaves_its_nodes_and_their_jobs_alone(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """54 of 60 nodes, each with what the mounts' reader and the check of mounts say of it, the latter low."""
    names = [f"n{i}" for i in range(60)]
    slurm.state = {n: view.Node(name=n, states=frozenset({"ALLOCATED"}), partitions=("gpu",)) for n in names}
    start_at = fakes.NOW - HOUR
    slurm.running = {
        i: view.ActiveJob(job_id=i, start_at=start_at, nodes=tuple(names[i : i + 4])) for i in range(0, 60, 4)
    }
    rows = [(n, "storage", "fs1" if i < 54 else "fs2") for i, n in enumerate(names)]
    service.store.save_places("c", ["storage"], rows, fakes.NOW - 24 * HOUR)
    began = fakes.NOW - timedelta(seconds=60)
    for i, name in enumerate(names[:54]):
        hangs = test_tasks.xid(
            2 * i + 1, name, at=began, observed_at=began, kind="mount", code="hanging", device="/scratch",
            gpu_uuid=None, source="mount",
        )  # fmt: skip
        slow = dataclasses.replace(
            hangs, event_id=uuid.UUID(int=2 * i + 2), kind="check", code="mount_responsive", source="check",
            severity=records.Severity.LOW,
        )  # fmt: skip
        fakes.deliver(service.store, name, hangs, slow)
    actions.run(service)
    assert slurm.acts == []
    drains = service.store.drains(cluster="c")
    assert {d.state for d in drains} == {"skipped"}
    assert len({d.node for d in drains}) == 54
