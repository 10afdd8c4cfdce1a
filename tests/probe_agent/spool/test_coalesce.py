"""Storms: folded without losing a count, and never in the way of what is grave."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import records
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import gpus, sighting
from probing_cluster.probe_agent.spool import coalesce, codec, spool

START = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
HIGH, LOW = records.Severity.HIGH, records.Severity.LOW
IDENTITY = identity.Identity(cluster="c", node="n1", root=Path("/"))


def decoded(items: list[spool.SpoolItem]) -> list[records.HealthEvent]:
    return [codec.decode(i.body, records.HealthEvent) for i in items]


def xid(position: str, *, stream_s: float = 0.0, at: datetime = START, **fields: Any) -> sighting.Sighting:
    values = {"source": "kernel", "kind": "xid", "code": "79", "severity": HIGH, "message": "Xid 79"} | fields
    return sighting.Sighting(position=position, stream_s=stream_s, at=at, **values)


def make(one: sighting.Sighting) -> records.HealthEvent:
    return sighting.to_event(one, identity=IDENTITY, inventory=gpus.Inventory(), observed_at=START)


def add(folds: coalesce.Coalescer, one: sighting.Sighting, now_s: float = 0.0) -> list[spool.SpoolItem]:
    return folds.add(one, make, now_s=now_s)[0]


def test_hundred_thousand_equal_lines_keep_their_count_and_times() -> None:
    """A minute of one cable's noise becomes a few rows whose counts, first and last times add up."""
    folds = coalesce.Coalescer(window_s=10.0)
    items: list[spool.SpoolItem] = []
    for n in range(100_000):
        after_s = n * 60 / 100_000
        items += add(
            folds, xid(f"b:{n}", at=START + timedelta(seconds=after_s), severity=LOW, stream_s=after_s)
        )
    items += folds.due(0.0, everything=True)
    found = decoded(items)
    assert sum(e.count for e in found) == 100_000
    assert len(found) == 12
    assert min(e.at for e in found) == START
    assert max(e.last_at or e.at for e in found) == START + timedelta(seconds=99_999 * 60 / 100_000)
    assert len({e.event_id for e in found}) == len(found)


def test_first_of_a_kind_passes_at_once_and_the_rest_waits() -> None:
    """Nothing waits for a window before it is told for the first time."""
    folds = coalesce.Coalescer(window_s=10.0)
    assert len(add(folds, xid("b:1"))) == 1
    assert add(folds, xid("b:2", stream_s=1.0), 1.0) == []
    assert [i.open for i in folds.open_items()] == [True]
    assert folds.open_items() == []
    assert folds.due(5.0) == []
    assert [e.count for e in decoded(folds.due(11.0))] == [1]


def test_events_that_differ_in_anything_that_matters_are_not_folded() -> None:
    """Another device, process, code or severity is another event."""
    folds = coalesce.Coalescer()
    variants = [{}, {"device": "gpu1"}, {"pid": 7}, {"code": "48"}, {"severity": LOW}, {"gpu_uuid": "GPU-1"}]
    passed = [add(folds, xid(f"b:{n}", **v)) for n, v in enumerate(variants)]
    assert all(len(p) == 1 for p in passed)


def test_a_jump_of_the_wall_clock_neither_splits_nor_merges_windows() -> None:
    """Windows follow the stream's own time."""
    folds = coalesce.Coalescer(window_s=10.0)
    add(folds, xid("b:1"))
    for n in range(2, 6):
        assert add(folds, xid(f"b:{n}", at=START - timedelta(days=n), stream_s=float(n)), float(n)) == []
    (tail,) = decoded(folds.due(11.0))
    assert tail.count == 4
    assert tail.event_id == make(xid("b:2")).event_id


def test_replay_of_the_same_stream_makes_the_same_rows() -> None:
    """Identity and count of every row depend on the stream alone."""

    def run() -> Counter[tuple[str, int]]:
        folds = coalesce.Coalescer(window_s=10.0)
        items: list[spool.SpoolItem] = []
        for n in range(500):
            items += add(folds, xid(f"b:{n}", pid=n % 3, stream_s=n / 7))
        return Counter((str(e.event_id), e.count) for e in decoded(items + folds.due(0.0, everything=True)))

    assert run() == run()


def test_more_keys_than_can_be_tracked_still_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm of ever new process ids passes unfolded instead of filling memory."""
    monkeypatch.setattr(coalesce, "MAX_OPEN", 50)
    folds = coalesce.Coalescer()
    items: list[spool.SpoolItem] = []
    for n in range(80):
        items += add(folds, xid(f"b:{n}", pid=n))
        items += add(folds, xid(f"c:{n}", pid=n))
    found = decoded(items + folds.due(0.0, everything=True))
    assert sum(e.count for e in found) == 160
    assert len(folds._folds) <= 50


def test_folded_count_is_told_once() -> None:
    """The heartbeat's coalesced_total counts sightings that have no row of their own."""
    folds = coalesce.Coalescer()
    for n in range(10):
        add(folds, xid(f"b:{n}"))
    assert folds.drain_count() == 8
    assert folds.drain_count() == 0


def test_what_cannot_storm_is_never_folded() -> None:
    """Two findings of a job's log differ in more than their kind."""
    folds = coalesce.Coalescer()
    items = [add(folds, xid(f"7:0:{n}", source="joblog", stream_s=None)) for n in range(3)]
    assert [len(i) for i in items] == [1, 1, 1]


def test_processes_killed_without_end_use_up_nobodys_rows() -> None:
    """A job whose processes die a hundred times a second gets some rows a window; no kill is lost, and another job's has its own row."""
    folds = coalesce.Coalescer(window_s=10.0)
    items: list[spool.SpoolItem] = []
    oom = {"kind": "oom", "code": "memcg", "severity": records.Severity.INFO}
    for n in range(1000):
        items += add(folds, xid(f"b:{n}", stream_s=n / 100, pid=n, process=f"p{n}", job_id=7, **oom))
    items += add(folds, xid("b:other", stream_s=9.99, pid=5000, process="python", job_id=8, **oom))
    items += folds.due(0.0, everything=True)
    found = decoded(items)
    assert Counter(e.job_id for e in found) == {7: coalesce.MAX_PROCESSES + 2, 8: 1}
    assert sum(e.count for e in found if e.job_id == 7) == 1000
    items = add(folds, xid("b:later", stream_s=12.0, pid=6000, process="q", job_id=7, **oom))
    assert [e.pid for e in decoded(items)] == [6000]


def test_faults_of_many_processes_keep_their_rows() -> None:
    """What is more than information is folded by process only."""
    folds = coalesce.Coalescer(window_s=10.0)
    items = [i for n in range(50) for i in add(folds, xid(f"b:{n}", pid=n, process=f"p{n}"))]
    assert len(items) == 50
