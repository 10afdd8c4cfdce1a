"""The poller: one source's trouble is its own, nothing is forgotten in a restart, and a quiet node writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import clock as clocks
from probing_cluster.core import processes, records
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import conditions, faults
from probing_cluster.probe_agent.sources import polled, poller
from probing_cluster.probe_agent.spool import codec, intake, spool


class Scripted:
    """A source that answers what the test says."""

    def __init__(self, name: str = "mounts", every: int = 1) -> None:
        self.present: list[conditions.Condition] = []
        self.healthy: frozenset[str] = frozenset()
        self.memory: dict[str, Any] = {}
        self.given: list[Mapping[str, Any]] = []
        self.fails: Exception | None = None
        self.raw = "raw"
        self.reads = 0
        self.source = polled.Polled(
            name=name, source="mount", read=self.read, judge=self.judge, every=every, reads="-", stands="-"
        )

    async def read(self, *_: Any) -> str:
        self.reads += 1
        if self.fails is not None:
            raise self.fails
        return self.raw

    def judge(self, raw: Any, memory: Mapping[str, Any], context: polled.PollContext) -> conditions.Judgement:
        assert raw == self.raw
        self.given.append(memory)
        return conditions.Judgement(present=tuple(self.present), healthy=self.healthy, memory=self.memory)


GONE = conditions.Condition(
    kind="mount", code="missing", device="/x", severity=records.Severity.HIGH, message="gone"
)


class Rig:
    def __init__(
        self,
        node_identity: identity.Identity,
        directory: Path,
        *sources: Scripted,
        at: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self.spool = spool.Spool(directory, max_bytes=10_000_000)
        self.faults = faults.Faults(node_identity.boot_id(), self.spool.state("faults"))
        self.watch = self_watch.SelfWatch()
        self.changes = 0
        reader: Any = None
        self.poller = poller.Poller(
            sources=[s.source for s in sources],
            reader=reader,
            identity=node_identity,
            intake=intake.Intake(identity=node_identity, spool=self.spool, faults=self.faults),
            faults=self.faults,
            spool=self.spool,
            watch=self.watch,
            context=lambda closely, relearn, cleared: polled.PollContext(
                now=datetime.now(UTC),
                boot_id=node_identity.boot_id(),
                closely=closely,
                relearn=relearn,
            ),
            on_change=self.changed,
            clock=at,
        )

    def changed(self) -> None:
        self.changes += 1

    def poll(self, times: int = 1, **calls: bool) -> None:
        for _ in range(times):
            asyncio.run(self.poller.poll(**calls))

    def events(self) -> list[records.HealthEvent]:
        return [codec.decode(i.body, records.HealthEvent) for i in self.spool.batch(100)]


@pytest.fixture
def source() -> Scripted:
    return Scripted()


def test_condition_becomes_an_event_and_a_standing_fault(
    node_identity: identity.Identity, source: Scripted, tmp_path: Path
) -> None:
    """One event however often it is read; the fault carries its id; its end is told and the fault is gone."""
    rig = Rig(node_identity, tmp_path / "s", source)
    source.present = [GONE]
    rig.poll(3)
    (came,) = rig.events()
    (row,) = rig.faults.rows().values()
    assert row["event_id"] == str(came.event_id)
    assert (came.kind, came.source, row["latched"]) == ("mount", "mount", False)
    source.present = []
    rig.poll(2)
    assert [e.detail.get("recovered") for e in rig.events()] == [None, True]
    assert rig.faults.rows() == {}
    assert rig.changes == 2
    rig.spool.close()


def test_restart_of_the_agent_remembers_and_repeats_nothing(
    node_identity: identity.Identity, source: Scripted, tmp_path: Path
) -> None:
    """Memory, standing conditions and identities come back with the spool."""
    first = Rig(node_identity, tmp_path / "s", source)
    source.present, source.memory = [GONE], {"learned": 7}
    first.poll()
    first.spool.close()
    again = Rig(node_identity, tmp_path / "s", source)
    assert again.faults.rows() == {}
    again.poll()
    assert source.given[-1] == {"learned": 7}
    assert len(again.events()) == 1
    assert list(again.faults.rows()) == ["mount:/x"]
    again.spool.close()


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        (children.ChildHung("no answer"), "hung"),
        (processes.ChildFailed("died"), "error"),
        (ZeroDivisionError("a bug"), "error"),
    ],
)
def test_source_in_trouble_keeps_what_stood_and_stops_no_other(
    node_identity: identity.Identity, source: Scripted, tmp_path: Path, trouble: Exception, state: str
) -> None:
    """Not seeing is not health; the agent says which source cannot see."""
    other = Scripted(name="other")
    rig = Rig(node_identity, tmp_path / "s", source, other)
    source.present = [GONE]
    rig.poll()
    source.fails = trouble
    rig.poll(2)
    assert other.reads == 3
    assert list(rig.faults.rows()) == ["mount:/x"]
    assert rig.watch.of("mounts").state == state
    assert rig.watch.of("mounts").failures_total == 2
    assert len(rig.events()) == 1
    rig.spool.close()


def test_the_end_of_what_the_kernel_said_is_an_event_of_the_reading_that_shows_it(
    node_identity: identity.Identity, tmp_path: Path, event: Any
) -> None:
    """The kernel need not say that a port is up again: the reading does, once, and the heartbeat goes out."""
    ports = Scripted("infiniband")
    rig = Rig(node_identity, tmp_path / "s", ports)
    down = event(kind="ib_link", code="link_down", device="ib2", at=datetime.now(UTC) - timedelta(seconds=30))
    rig.faults.fold(down, now=datetime.now(UTC))
    ports.healthy = frozenset({"mlx5_2", "ib2"})
    rig.poll(3)
    (stored,) = rig.events()
    assert (stored.kind, stored.code, stored.device, stored.severity) == (
        "ib_link",
        "link_down",
        "ib2",
        records.Severity.INFO,
    )
    assert (stored.detail["recovered"], stored.detail["began"]) == (True, str(down.event_id))
    assert rig.faults.rows() == {}
    assert rig.changes == 1
    rig.spool.close()


def test_sources_have_their_own_pace_and_a_close_look_asks_all(
    node_identity: identity.Identity, tmp_path: Path
) -> None:
    """Dear readings are rare; when something grave was said everything is read at once."""
    often, seldom = Scripted("often"), Scripted("seldom", every=5)
    rig = Rig(node_identity, tmp_path / "s", often, seldom)
    rig.poll(5)
    assert (often.reads, seldom.reads) == (5, 1)
    rig.poll(everything=True)
    assert (often.reads, seldom.reads) == (6, 2)
    rig.spool.close()


def test_quiet_node_writes_nothing_to_its_disk(
    node_identity: identity.Identity, source: Scripted, tmp_path: Path
) -> None:
    """Which turn it is, and how often in a row, are not worth a write for ever."""
    rig = Rig(node_identity, tmp_path / "s", source)
    source.memory = {"learned": 1, "round": 0}
    rig.poll()
    before = rig.spool._db.total_changes
    for n in range(5):
        source.memory = {"learned": 1, "round": n, "streaks": {"x": n}}
        rig.poll()
    assert rig.spool._db.total_changes == before
    assert source.given[-1]["round"] == 3
    rig.spool.close()


def test_quiet_reading_that_repeats_itself_is_not_judged_again(
    node_identity: identity.Identity, source: Scripted, tmp_path: Path, clock: Any
) -> None:
    """It is read all the same; whatever changes, and a minute, and whoever asks, have it judged."""
    rig = Rig(node_identity, tmp_path / "s", source, at=clock)
    source.memory = {"learned": 1}
    rig.poll(2)  # the first one learns
    rig.poll(5)
    assert (source.reads, len(source.given)) == (7, 2)
    source.raw = "other"
    rig.poll(3)
    assert len(source.given) == 3
    rig.poll(everything=True)
    assert len(source.given) == 4
    clock.move(poller.STANDS_S + 1)
    rig.poll(2)
    assert len(source.given) == 5
    source.present = [GONE]
    source.raw = "gone"
    rig.poll(3)
    assert len(source.given) == 8  # what stands is confirmed by a judgement each time
    assert list(rig.faults.rows()) == ["mount:/x"]
    rig.spool.close()
