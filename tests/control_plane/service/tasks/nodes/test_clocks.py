"""What a node with a wrong clock reports counts by the server's clock."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import fakes
import psycopg
import pytest
import test_tasks

from probing_cluster.attribution.passes import node_clocks
from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import confirm
from probing_cluster.control_plane.service import picture
from probing_cluster.control_plane.service.tasks.jobs import gangs
from probing_cluster.control_plane.service.tasks.nodes import actions, clocks, silence
from probing_cluster.core import records
from probing_cluster.db import store as db_store

OFFSETS_S = [180.0, 3000.0, -180.0, -3000.0]


def was_off(store: db_store.Store, ahead_s: float, node: str = "n2") -> None:
    """The node's clock has been so far ahead for an hour, beside two nodes with right ones."""
    for other in ("n1", "n3", node):
        fakes.deliver(store, other, at=datetime.now(UTC))
    with psycopg.connect(store.url) as connection:
        connection.execute(
            "INSERT INTO probing.node_clock (cluster, node, from_at, to_at, offset_s, n_beats)"
            " VALUES ('c', %s, now() - interval '1 hour', now(), %s, 100)",
            (node, ahead_s),
        )


@pytest.fixture
def now(service: context.Context) -> datetime:
    """The service's time, which is the database's."""
    service.clock.at = datetime.now(UTC)  # type: ignore[attr-defined]
    return service.clock.now()


@pytest.mark.parametrize("ahead_s", OFFSETS_S)
def test_a_fresh_fault_is_acted_on_whatever_its_nodes_clock_shows(
    service: context.Context, slurm: fakes.FakeSlurm, now: datetime, ahead_s: float
) -> None:
    """By its node's time it was not fresh, or younger than the heartbeat that confirms it."""
    was_off(service.store, ahead_s)
    at = now + timedelta(seconds=ahead_s)
    fakes.deliver(service.store, "n2", test_tasks.xid(at=at, observed_at=at), at=at)
    assert clocks.run(service) == "the times of 1 events corrected"
    assert clocks.run(service) == ""
    actions.run(service)
    assert [act[0] for act in slurm.acts] == ["drain"]


@pytest.mark.parametrize("ahead_s", OFFSETS_S)
def test_a_fault_that_began_before_its_drain_was_lifted_is_lived_with(
    service: context.Context, now: datetime, ahead_s: float
) -> None:
    """Its drain was lifted ten seconds after it began: a clock ahead had it begin anew afterwards."""
    was_off(service.store, ahead_s)
    began = now - timedelta(seconds=20)
    fault = test_tasks.xid(
        at=began + timedelta(seconds=ahead_s), observed_at=began + timedelta(seconds=ahead_s)
    )
    fakes.deliver(service.store, "n2", fault, at=now + timedelta(seconds=ahead_s))
    clocks.run(service)
    service.store.save_drain(
        records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node="n2", action="drain", state="resumed", at=began,
            ended_at=now - timedelta(seconds=10), event_ids=(fault.event_id,), reason="Xid 79", owner="probing",
        )
    )  # fmt: skip
    fleet_view = picture.waiting(service)
    (event,) = fleet_view.events
    why = confirm.why_not(event, fleet_view, service.config.policy)
    assert why == "the node was put back although it stands"


@pytest.mark.parametrize("ahead_s", OFFSETS_S)
def test_a_stall_is_looked_at_whatever_its_nodes_clock_shows(
    service: context.Context, now: datetime, ahead_s: float
) -> None:
    """With a clock three minutes behind no stall was ever new enough."""
    was_off(service.store, ahead_s)
    began = now - timedelta(hours=1)
    service.store.upsert_attempts([
        records.JobAttempt(
            cluster="c", job_id=7, submit_at=began, start_at=began, state="RUNNING", nodes=("n1", "n2", "n3"), run_key="7"
        )
    ])  # fmt: skip
    at = now + timedelta(seconds=ahead_s)
    stall = test_tasks.xid(
        at=at, observed_at=at, kind="rank_stall", code=None, severity=records.Severity.INFO, source="probe", job_id=7
    )  # fmt: skip
    fakes.deliver(service.store, "n2", stall, at=at)
    clocks.run(service)
    service.clock.at = datetime.now(UTC)  # type: ignore[attr-defined]
    assert gangs.run(service) == "jobs 7: 2 nodes asked"


@pytest.mark.parametrize("ahead_s", OFFSETS_S)
def test_an_agent_is_silent_since_its_last_heartbeat_by_the_servers_clock(
    service: context.Context, now: datetime, ahead_s: float
) -> None:
    """A clock ahead had its node live on after its death."""
    was_off(service.store, ahead_s)
    fakes.deliver(service.store, "n2", at=now + timedelta(seconds=ahead_s), beat_s=1e-6)
    assert silence.run(service) == "silent: n2"
    (event,) = service.store.events(kinds=["agent_silent"])
    assert abs(event.at - now) < timedelta(seconds=30)
    node_clocks.correct(service.store)
    assert service.store.events(kinds=["agent_silent"]) == [event], "the service dated it"
