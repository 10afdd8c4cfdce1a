"""The task that takes drained nodes through their repair, on a real database."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable
from datetime import timedelta

import fakes
import pytest
import sqlalchemy as sa

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import resume_policy, view
from probing_cluster.control_plane.repair import rounds
from probing_cluster.control_plane.service.tasks.nodes import repair, resume
from probing_cluster.core import errors, records
from probing_cluster.db import delivery
from probing_cluster.slurm_plugins.acts import reservations

DRAINED_AT = fakes.NOW - timedelta(hours=3)


class Bookings:
    """Reservations in memory."""

    def __init__(self, *_: object) -> None:
        self.held: dict[str, frozenset[str]] = {}

    def all(self) -> list[reservations.Reservation]:
        return [reservations.Reservation(name=n, nodes=covered) for n, covered in self.held.items()]

    def create(self, name: str, nodes: Iterable[str]) -> None:
        self.held[name] = frozenset(nodes)

    def delete(self, name: str) -> None:
        self.held.pop(name, None)


def drained(
    service: context.Context, slurm: fakes.FakeSlurm, url: str, names: Iterable[str], *, well: bool
) -> None:
    """Nodes that we drained three hours ago, and whose agents still show the fault or have been quiet since."""
    for name in names:
        slurm.state[name] = view.Node(
            name=name, states=frozenset({"IDLE", "DRAIN"}), reason="probing: check user_lookup",
            reason_at=DRAINED_AT, partitions=("gpu",), n_gpus=8,
        )  # fmt: skip
        drain = records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node=name, at=DRAINED_AT, action="drain", state="done",
            reason="probing: check user_lookup", owner="probing",
        )  # fmt: skip
        service.store.save_drain(drain)
        fault = {"severity": "low", "event_id": str(uuid.uuid4()), "since": DRAINED_AT.isoformat()}
        beat = records.AgentHeartbeat(
            cluster="c", node=name, at=fakes.NOW, boot_id="b",
            faults={} if well else {"check:user_lookup": fault},
        )  # fmt: skip
        with delivery.Delivery(url, "c", name) as door:
            door.deliver(heartbeat=beat)
        if well:
            service.memory(resume.GreenTimes)[name] = resume_policy.GreenTime(
                since=DRAINED_AT, beats=99, last_at=fakes.NOW
            )


def test_a_repair_that_a_person_ended_is_not_opened_again(
    service: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The node stays drained after `repair done`: no pass opens a repair for that drain, or says that it did."""
    service.config = dataclasses.replace(
        service.config, policy=dataclasses.replace(service.config.policy, observe_only=True)
    )
    slurm.drain("n2", "probing: xid 79 gpu3")
    drain = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=fakes.NOW, action="drain", state="done",
        reason="probing: xid 79 gpu3", owner="probing",
    )  # fmt: skip
    service.store.save_drain(drain)
    assert "n2 repair opened" in repair.run(service)
    (incident,) = service.store.incidents(open_only=True)
    service.store.update_incident(
        incident.incident_id, state="closed", closed_at=fakes.NOW + timedelta(seconds=30)
    )
    assert repair.run(service) == ""
    assert service.store.incidents(open_only=True) == []


def test_a_pass_over_nodes_that_wait_asks_no_more_however_many_they_are(
    service: context.Context, slurm: fakes.FakeSlurm, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm is asked for all nodes at once, the database as often for 20 as for 4: also for tickets, and for repairs that a person ended."""
    monkeypatch.setattr(repair.reservations, "Reservations", Bookings)
    looks: list[str] = []
    monkeypatch.setattr(slurm, "node", looks.append)
    statements: list[str] = []

    def note(*given: object) -> None:
        statements.append(str(given[2]))

    sa.event.listen(service.store.engine, "before_cursor_execute", note)
    n_statements = []
    for names in ([f"few{i}" for i in range(4)], [f"many{i}" for i in range(20)]):
        drained(service, slurm, postgres_url, names, well=False)
        repair.run(service)  # opens them
        ours = [i for i in service.store.incidents(open_only=True) if i.node in names]
        assert {i.state for i in ours} == {"queued"}
        service.store.update_incident(ours[0].incident_id, state="ticket")
        service.store.update_incident(ours[1].incident_id, state="closed", closed_at=fakes.NOW)
        service.store.update_incident(ours[2].incident_id, held_by="eve")
        looks.clear()
        statements.clear()
        assert repair.run(service) == ""
        assert looks == []
        n_statements.append(len(statements))
    sa.event.remove(service.store.engine, "before_cursor_execute", note)
    assert n_statements[0] == n_statements[1]


def test_few_nodes_are_tested_at_once_and_the_others_wait_drained(
    service: context.Context, slurm: fakes.FakeSlurm, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage that ends for all of them at the same moment; the next one begins when one is back."""
    bookings = Bookings()
    monkeypatch.setattr(repair.reservations, "Reservations", lambda *_: bookings)
    ends: dict[uuid.UUID, rounds.RoundEnd | None] = {}
    monkeypatch.setattr(rounds.Rounds, "start", lambda _, __, ___, round_id: ends.update({round_id: None}))
    monkeypatch.setattr(rounds.Rounds, "stop", lambda *_: None)

    def state(_: rounds.Rounds, round_id: uuid.UUID) -> rounds.RoundEnd | None:
        if round_id not in ends:
            raise errors.NotFound("not run by this service")
        return ends[round_id]

    monkeypatch.setattr(rounds.Rounds, "state", state)
    service.config = dataclasses.replace(
        service.config, repair=dataclasses.replace(service.config.repair, rounds_at_once=2)
    )
    drained(service, slurm, postgres_url, [f"w{i}" for i in range(6)], well=True)
    for _ in range(3):
        repair.run(service)
        found = {i.node: i for i in service.store.incidents(open_only=True)}
        assert sorted(i.state for i in found.values()) == ["queued"] * 4 + ["testing"] * 2
        assert len(bookings.held) == len(ends) == 2
        waiting = [i for i in found.values() if i.state == "queued"]
        assert {i.why for i in waiting} == {"as many nodes are under test as may be at once (2)"}
        assert all("DRAIN" in slurm.state[i.node].states for i in waiting)
    # One of the two cannot be tested: its round ends without an answer, again and again, then at a person.
    first = next(i for i in found.values() if i.state == "testing")
    assert first.round_id is not None
    for _ in range(service.config.repair.most_rounds + 1):
        mine = next(i for i in service.store.incidents(node=first.node))
        if mine.round_id in ends:
            ends[mine.round_id] = rounds.RoundEnd(why="its job did not start")
        repair.run(service)
        testing = [i for i in service.store.incidents(open_only=True) if i.state == "testing"]
        assert len(testing) == len(bookings.held) == 2
    assert service.store.incidents(node=first.node)[0].state in {"ticketing", "ticket"}
