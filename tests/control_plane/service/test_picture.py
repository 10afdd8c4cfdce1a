"""What the policy decides from: how old an event may be after an outage of Slurm."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import fakes
import pytest
import test_tasks

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import picture
from probing_cluster.control_plane.service.tasks.nodes import actions
from probing_cluster.slurm_plugins import commands

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(("since_end_s", "drained"), [(10, True), (1000, False)])
def test_a_fault_of_an_outage_is_acted_on_after_it(
    since_end_s: float, drained: bool, service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """A GPU lost while slurmctld was away for an hour is drained once it answers, if the agent still sees it; not at any later time."""
    now = fakes.NOW
    lost_at = now - HOUR + timedelta(seconds=60)
    end = now - timedelta(seconds=since_end_s)
    service.journal.note_slurm("nodes", now - HOUR, commands.SlurmAway("Unable to contact slurm controller"))
    service.journal.note_slurm("nodes", end, None)
    fakes.deliver(service.store, "n2", test_tasks.xid(at=lost_at, observed_at=lost_at))
    actions.run(service)
    assert [act[0] for act in slurm.acts] == (["drain"] if drained else [])


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


def test_without_an_outage_an_old_event_is_history(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """An event of an hour ago causes no drain."""
    lost_at = fakes.NOW - HOUR
    fakes.deliver(service.store, "n2", test_tasks.xid(at=lost_at, observed_at=lost_at))
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
