"""Delivery on real Postgres: grave first, nothing lost while it is away, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.core import errors, records
from probing_cluster.db import delivery, roles, store
from probing_cluster.db.server import embedded
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import faults, sighting
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.spool import delivery_loop, intake, spool
from tests.set_clock import SetClock

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)


class Rig:
    """A spool, an intake and a delivery loop, with a door the test chooses."""

    def __init__(self, tmp_path: Path, door: Callable[[], Any] | None) -> None:
        self.node_identity = identity.Identity(cluster="c", node="n1", root=tmp_path)
        self.spool = spool.Spool(tmp_path / "spool", max_bytes=10_000_000)
        self.intake = intake.Intake(identity=self.node_identity, spool=self.spool, faults=faults.Faults("b"))
        self.requests: list[delivery.Request] = []
        self.loop = delivery_loop.DeliveryLoop(
            door=door,
            spool=self.spool,
            intake=self.intake,
            heartbeat=self.heartbeat,
            beat_s=lambda: 10.0,
            on_request=self.requests.append,
        )

    def heartbeat(self) -> records.AgentHeartbeat:
        return records.AgentHeartbeat(cluster="c", node="n1", at=datetime.now(UTC))

    def see(self, *positions: str, severity: records.Severity = records.Severity.LOW) -> None:
        self.intake.take(
            sighting.Sighting(
                source="kernel", position=p, at=NOW, kind="xid", code="79", severity=severity, message=p
            )
            for p in positions
        )

    def close(self) -> None:
        self.loop.close()
        self.spool.close()


class Broken:
    """A database that fails as often as it is told to, and remembers what it got."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[dict[str, Any]] = []

    def deliver(self, **load: Any) -> delivery.Ack:
        self.calls.append(load)
        if len(self.calls) <= self.failures:
            raise errors.DatabaseUnavailable("gone")
        return delivery.Ack(accepted=len(load["events"]))

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def rig(tmp_path: Path, postgres_url: str) -> Any:
    made = Rig(tmp_path, lambda: delivery.Delivery(postgres_url, "c", "n1"))
    yield made
    made.close()


def rows(url: str, query: str) -> Sequence[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def test_events_checks_allocations_and_heartbeat_arrive_once(rig: Any, postgres_url: str) -> None:
    """Everything in one call; delivered again after an unknown commit it makes no second row."""
    rig.see("b:1", "b:2")
    rig.intake.store(
        [jobs.NodeJob(job_id=7, started_at=NOW, uid=5, gpu_uuids=("GPU-1",)).item(rig.node_identity)]
    )
    before = rig.spool.batch(10)
    asyncio.run(rig.loop.once(beat=True))
    assert rig.spool.depth == 0
    rig.spool.commit(spool.SpoolWrite(items=before))
    asyncio.run(rig.loop.once())
    assert rows(postgres_url, "select count(*) from probing.health_event") == [(2,)]
    assert rows(postgres_url, "select job_id, gpu_uuids from probing.job_allocation") == [(7, ["GPU-1"])]
    assert rows(postgres_url, "select count(*) >= 1 from probing.agent_heartbeat") == [(True,)]
    assert rig.loop.duplicates_total == 2
    assert rig.spool.depth == 0


def test_request_of_the_service_arrives_once_and_is_acknowledged(rig: Any, postgres_url: str) -> None:
    """The acknowledgement of a delivery brings requests; done ones are not brought again."""
    with store.Store.open(postgres_url) as service:
        requested = service.request("n1", "recheck", ttl_s=60.0, detail={"clear": True}, cluster="c")
    asyncio.run(rig.loop.once(beat=True))
    assert [(r.request_id, r.verb, r.detail) for r in rig.requests] == [
        (requested, "recheck", {"clear": True})
    ]
    asyncio.run(rig.loop.once(beat=True))
    assert len(rig.requests) == 1
    rig.loop.acknowledge(requested)
    asyncio.run(rig.loop.once())  # not only with the next heartbeat: a restart waits for the word
    assert rows(postgres_url, "select acknowledged_at is not null from probing.node_request") == [(True,)]


def test_grave_event_travels_first_and_with_a_heartbeat(tmp_path: Path) -> None:
    """The service acts only on a fault that the latest heartbeat confirms, so they go together."""
    door = Broken(0)
    rig = Rig(tmp_path, lambda: door)
    rig.loop._beaten_s = 1e12
    rig.see("b:1", "b:2")
    rig.see("b:3", severity=records.Severity.HIGH)
    asyncio.run(rig.loop.once())
    (call,) = door.calls
    assert [e.message for e in call["events"]] == ["b:3", "b:1", "b:2"]
    assert call["heartbeat"] is not None
    rig.close()


def test_a_job_that_starts_is_told_with_the_rest_and_shortens_the_beat(tmp_path: Path) -> None:
    """A thousand short jobs are no thousand urgent calls; but from its start on the agent beats as often as it promised."""
    door = Broken(0)
    rig = Rig(tmp_path, lambda: door)
    rig.intake.store([jobs.NodeJob(job_id=7, started_at=NOW, uid=5).item(rig.node_identity)])
    assert not rig.intake.urgent.is_set()
    assert rig.intake.arrived.is_set()
    beat_s = 10.0
    rig.loop._beat_s = lambda: beat_s
    asyncio.run(rig.loop.once(beat=True))
    before = rig.loop._beat_left_s()
    beat_s = 5.0
    assert 9.0 < before <= 10.0
    assert rig.loop._beat_left_s() <= 5.0
    rig.close()


def test_nothing_is_lost_while_the_database_is_away(tmp_path: Path) -> None:
    """Hours of failures only fill the spool; then everything goes, in order, and the error is forgotten."""
    door = Broken(5)
    rig = Rig(tmp_path, lambda: door)
    for n in range(5):
        rig.see(f"b:{n}")
        assert asyncio.run(rig.loop.once()) is False
        assert rig.loop.error is not None
    assert rig.spool.depth == 5
    asyncio.run(rig.loop.once())
    assert [e.message for e in door.calls[-1]["events"]] == [f"b:{n}" for n in range(5)]
    assert rig.spool.depth == 0
    assert rig.loop.error is None
    rig.close()


def test_backlog_is_sent_batch_after_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage the next batch does not wait for the next beat."""
    monkeypatch.setattr(delivery_loop, "BATCH", 10)
    door = Broken(0)
    rig = Rig(tmp_path, lambda: door)
    rig.see(*(f"b:{n}" for n in range(25)))
    assert asyncio.run(rig.loop.once()) is True
    assert asyncio.run(rig.loop.drain(5.0)) is True
    assert sum(len(c["events"]) for c in door.calls) == 25
    rig.close()


def test_unreadable_item_is_counted_and_holds_up_nothing(tmp_path: Path) -> None:
    """A body that no longer decodes is given up alone."""
    door = Broken(0)
    rig = Rig(tmp_path, lambda: door)
    rig.spool.commit(
        spool.SpoolWrite(items=[spool.SpoolItem(id=b"x" * 16, lane="event", rank=2, body=b"torn")])
    )
    rig.see("b:1")
    asyncio.run(rig.loop.once())
    assert [e.message for e in door.calls[0]["events"]] == ["b:1"]
    assert rig.spool.depth == 0
    assert rig.spool.totals.rejected == 1
    rig.close()


def test_call_that_never_returns_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network does not stop the agent; the next attempt uses another connection."""
    import threading

    monkeypatch.setattr(delivery_loop, "CALL_S", 0.2)
    release = threading.Event()

    class Stuck(Broken):
        def deliver(self, **load: Any) -> delivery.Ack:
            release.wait(60)
            return super().deliver(**load)

    doors: list[Broken] = [Stuck(0), Broken(0)]
    made = iter(doors)
    rig = Rig(tmp_path, lambda: next(made))
    rig.see("b:1")

    async def work() -> None:
        assert await rig.loop.once() is False
        release.set()
        monkeypatch.setattr(delivery_loop, "CALL_S", 60.0)
        await rig.loop.once()

    asyncio.run(work())
    assert len(doors[1].calls) == 1
    assert rig.spool.depth == 0
    rig.close()


def test_without_a_database_everything_stays_in_the_spool(tmp_path: Path) -> None:
    """Not configured is said, not failed."""
    rig = Rig(tmp_path, None)
    rig.see("b:1")
    assert asyncio.run(rig.loop.drain(1.0)) is False
    assert rig.loop.error == "no database is configured"
    rig.close()


def test_expired_and_unknown_requests_do_nothing_but_are_acknowledged() -> None:
    """A verb outside the list is never guessed at."""
    from probing_cluster.probe_agent.hooks import fitness, requests

    done: list[uuid.UUID] = []
    held = fitness.Permissions()
    slurm: Any = None
    desk = requests.Requests(
        outside=slurm,
        book=jobs.JobBook("b"),
        permissions=held,
        acknowledge=done.append,
        forget=done.remove,
        spawn=lambda w: w.close(),
        questions=slurm,
    )

    def request(verb: str, after_s: float = 60.0) -> delivery.Request:
        expires = datetime.now(UTC) + timedelta(seconds=after_s)
        return delivery.Request(
            request_id=uuid.uuid4(), verb=verb, job_id=None, expires_at=expires, detail={}
        )

    desk.handle(request("refusal_permission", after_s=-1))
    desk.handle(request("run_command"))
    desk.handle(request("collect"))
    assert held.held == {}
    desk.handle(request("refusal_permission"))
    assert len(held.held) == 1
    assert len(done) == 4


def test_after_a_death_beside_a_fault_the_agent_asks_often(tmp_path: Path) -> None:
    """The service will ask for the log of the job that has left: its restart must not wait for the next beat."""
    rig = Rig(tmp_path, lambda: Broken(0))
    try:
        asyncio.run(rig.loop.once(beat=True))
        assert rig.loop._beat_left_s() > 5.0
        rig.loop.ask_often()
        assert rig.loop._beat_left_s() <= 1.0
    finally:
        rig.close()


class Rationed(Broken):
    """A database that takes no more rows of this node than `left`, and heartbeats always."""

    def __init__(self, left: int) -> None:
        super().__init__(0)
        self.left = left

    def deliver(self, **load: Any) -> delivery.Ack:
        if len(load["events"]) > self.left:
            self.calls.append({"refused": len(load["events"])})
            raise errors.OverQuota("node n1 has delivered 100001 new rows this hour")
        self.left -= len(load["events"])
        return super().deliver(**load)


def test_a_node_whose_rows_are_used_up_sends_its_faults_and_heartbeats(tmp_path: Path) -> None:
    """What its jobs printed stays in the spool and arrives when rows are taken again."""
    door = Rationed(2)
    made = Rig(tmp_path, lambda: door)
    ticks = SetClock(NOW)
    made.loop._clock = ticks
    made.see(*(f"b:{n}" for n in range(5)))
    made.see("b:gpu", severity=records.Severity.HIGH)
    asyncio.run(made.loop.once(beat=True))
    assert door.calls == [{"refused": 6}]
    asyncio.run(made.loop.once(beat=True))
    assert [e.message for e in door.calls[-1]["events"]] == ["b:gpu"]
    assert door.calls[-1]["heartbeat"] is not None
    door.left = 0
    made.see("b:gpu2", severity=records.Severity.HIGH)
    asyncio.run(made.loop.once(beat=True))
    asyncio.run(made.loop.once(beat=True))
    assert door.calls[-1]["events"] == []
    assert door.calls[-1]["heartbeat"] is not None
    assert made.spool.depth == 6
    door.left = 100
    ticks.at += timedelta(seconds=delivery_loop.OVER_QUOTA_S + 1)
    asyncio.run(made.loop.once(beat=True))
    assert len(door.calls[-1]["events"]) == 6
    assert made.spool.depth == 0
    made.close()


def test_a_node_that_may_send_nothing_does_not_send_again_at_once(tmp_path: Path) -> None:
    """Beyond its reserve, and with its heartbeat refused as too soon: each urgent event would have it call the database without a pause."""

    class Refusing(Broken):
        def deliver(self, **load: Any) -> delivery.Ack:
            self.calls.append(load)
            raise errors.OverQuota("node n1 has delivered 100001 new rows this hour")

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await made.loop.run()

    door = Refusing(0)
    made = Rig(tmp_path, lambda: door)
    made.see("b:gpu", severity=records.Severity.HIGH)
    asyncio.run(run())
    assert 1 <= len(door.calls) <= 4
    made.close()


def test_a_fault_arrives_though_many_jobs_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch full of rows of jobs, which are ranked as high and came first, hides no fault of a node over its quota."""
    monkeypatch.setattr(delivery_loop, "BATCH", 10)
    door = Rationed(2)
    made = Rig(tmp_path, lambda: door)
    made.see(*(f"b:{n}" for n in range(5)))
    asyncio.run(made.loop.once(beat=True))
    assert door.calls == [{"refused": 5}]
    starts = [jobs.NodeJob(job_id=n, started_at=NOW, uid=5) for n in range(1, 21)]
    made.intake.store([start.item(made.node_identity) for start in starts])
    made.see("b:gpu", severity=records.Severity.HIGH)
    asyncio.run(made.loop.once(beat=True))
    assert [e.message for e in door.calls[-1]["events"]] == ["b:gpu"]
    assert door.calls[-1]["allocations"] == []
    made.close()


@pytest.mark.parametrize("job_begins", [False, True])
def test_a_fault_arrives_though_the_rows_of_the_hour_are_used_up(
    tmp_path: Path, postgres_url: str, *, job_begins: bool
) -> None:
    """On a database with a real quota: neither a job that begins meanwhile nor heartbeats in quick succession delay it."""
    role = roles.add_agent(postgres_url, "c", "n1", rows_per_hour=100)
    url = postgres_url.replace(f"{embedded.OWNER}@", f"{role}@")
    made = Rig(tmp_path, lambda: delivery.Delivery(url, "c", "n1"))
    try:
        made.see(*(f"a:{n}" for n in range(100)))
        made.intake.tick(everything=True)
        asyncio.run(made.loop.once(beat=True))
        made.see(*(f"b:{n}" for n in range(5)))
        made.intake.tick(everything=True)
        if job_begins:
            made.intake.store([jobs.NodeJob(job_id=7, started_at=NOW, uid=5).item(made.node_identity)])
        for _ in range(4):
            asyncio.run(made.loop.once(beat=True))
        made.see("b:gpu", severity=records.Severity.HIGH)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("update probing.agent_heartbeat set received_at = now() - interval '5 s'")
        asyncio.run(made.loop.once())
        found = rows(postgres_url, "select message from probing.health_event where severity = 'high'")
        assert found == [("b:gpu",)]
    finally:
        made.close()
        roles.remove(postgres_url, role)
