"""Nodes whose clocks were off: moves the times of their events to the server's clock, by the offset that their heartbeats show."""

from __future__ import annotations

import dataclasses
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import records
from probing_cluster.db import store

MOST = timedelta(seconds=cases.CORRECTED_S)
"""Greatest offset that is corrected. A clock further off was never set: nothing on its node can be dated."""
_BEAT = timedelta(seconds=15)
"""A clock may be set this long before a heartbeat shows it."""
_REACH = timedelta(days=7)
"""A verdict may mention events on its nodes from so long before its window."""
_ALIKE_S = 60.0
"""Offsets within about this are the same: the server's clock is off if most nodes have it."""
_BY_SERVICE = frozenset({"agent_silent", "node_down"})
"""Kinds of events that carry the time of a node's last heartbeat and are stored later."""
_OWN_CLOCK = frozenset({"import"})
"""Sources whose events the node's agent did not date: a file may be from any time."""
_SQL = Path(__file__).parent / "sql"


class ClockSpan(NamedTuple):
    """A time in which a node's clock was off by much the same."""

    from_at: datetime
    """By the server's clock, as `to_at`."""
    to_at: datetime
    offset: timedelta
    """How far the node's clock was ahead; negative = behind."""

    def covers(self, at: datetime) -> bool:
        """True if the clock was off so at an instant of the server's clock."""
        return self.from_at - _BEAT <= at <= self.to_at + _BEAT

    def meets(self, since: datetime, until: datetime) -> bool:
        """True if the clock was off so at some instant between the two."""
        return self.from_at - _BEAT <= until and self.to_at + _BEAT >= since


@dataclasses.dataclass(frozen=True)
class NodeClocks:
    """The clocks of one cluster's nodes that were ever off; every other node's is right."""

    spans: Mapping[str, Sequence[ClockSpan]] = dataclasses.field(default_factory=dict)
    receipts: Callable[[Sequence[uuid.UUID]], Mapping[uuid.UUID, datetime]] = lambda _: {}
    """Event ids to the time at which the server stored each event; an unknown one is missing."""

    def touch(self, node: str, since: datetime, until: datetime) -> bool:
        """True if the times of a node's events that a verdict with this window may mention are to be corrected."""
        return any(
            s.from_at - abs(s.offset) - _BEAT <= until and s.to_at + abs(s.offset) + _BEAT >= since - _REACH
            for s in self.spans.get(node, ())
        )

    def touches(self, nodes: Iterable[str], since: datetime, until: datetime) -> bool:
        """`touch` for any of these nodes."""
        return bool(self.spans) and any(self.touch(node, since, until) for node in nodes)

    def widened(self, node: str, since: datetime, until: datetime) -> tuple[datetime, datetime]:
        """Bounds by the node's own clock that hold all its events from `since` to `until` of the server's clock."""
        offsets = [s.offset for s in self.spans.get(node, ()) if abs(s.offset) <= MOST]
        return since + min([timedelta(), *offsets]), until + max([timedelta(), *offsets])

    def reach(self, nodes: Iterable[str]) -> tuple[timedelta, timedelta]:
        """How far back and how far ahead of the server's clock events of these nodes may be dated; neither is negative."""
        offsets = [s.offset for n in nodes for s in self.spans.get(n, ()) if abs(s.offset) <= MOST]
        return -min([timedelta(), *offsets]), max([timedelta(), *offsets])

    def offsets_s(self, nodes: Iterable[str], since: datetime, until: datetime) -> dict[str, float]:
        """Node to the seconds by which its clock was ahead between the two instants; nodes with a right clock are missing."""
        found = {n: s for n in nodes for s in self.spans.get(n, ()) if s.meets(since, until)}
        return {n: s.offset.total_seconds() for n, s in found.items()}

    def events(self, found: Sequence[records.HealthEvent]) -> list[records.HealthEvent]:
        """The events, with the times of the server's clock."""
        mine = [e for e in found if e.node in self.spans and e.source not in _OWN_CLOCK]
        if not mine:
            return list(found)
        stored = self.receipts([e.event_id for e in mine])
        moved = {e.event_id: self._moved(e, stored.get(e.event_id)) for e in mine}
        return [moved.get(e.event_id, e) for e in found]

    def _moved(self, event: records.HealthEvent, stored_at: datetime | None) -> records.HealthEvent:
        by_own_time = stored_at is None or event.kind in _BY_SERVICE
        offset = self._offset(event.node, event.at if by_own_time else None, stored_at)
        if not offset:
            return event
        return dataclasses.replace(
            event,
            at=event.at - offset,
            observed_at=event.observed_at if event.kind in _BY_SERVICE else event.observed_at - offset,
            last_at=None if event.last_at is None else event.last_at - offset,
            detail=_detail(event, offset),
        )

    def allocation(self, row: records.JobAllocation) -> records.JobAllocation:
        """A Prolog's record, with the times of the server's clock."""
        begun, ended = (
            self._offset(row.node, at) if at is not None else timedelta() for at in (row.at, row.released_at)
        )
        released_at = None if row.released_at is None else row.released_at - ended
        return dataclasses.replace(row, at=row.at - begun, released_at=released_at)

    def gone_at(self, node: str, at: datetime | None) -> datetime | None:
        """An instant of the node's clock by the server's; None stays None."""
        return None if at is None else at - self._offset(node, at)

    def _offset(self, node: str, at: datetime | None, stored_at: datetime | None = None) -> timedelta:
        """The offset at `at`, by the node's clock, else at `stored_at`, by the server's; zero if the clock was right or never set."""
        for span in reversed(self.spans.get(node, ())):
            there = stored_at if at is None else at - span.offset
            if abs(span.offset) <= MOST and there is not None and span.covers(there):
                return span.offset
        return timedelta()


def _detail(event: records.HealthEvent, offset: timedelta) -> Mapping[str, Any]:
    """The event's detail; the issue times of a dump's outstanding collectives are moved, too."""
    waiting = event.detail.get("outstanding")
    if event.source != "dump" or not isinstance(waiting, list):
        return event.detail
    by_ns = round(offset.total_seconds() * 1e9)
    moved = [
        {**entry, "created_ns": entry["created_ns"] - by_ns}
        if isinstance(entry, dict) and isinstance(entry.get("created_ns"), int)
        else entry
        for entry in waiting
    ]
    return {**event.detail, "outstanding": moved}


def read(source: store.Store, cluster: str) -> NodeClocks:
    """The clocks of a cluster's nodes.

    If most agents show the same offset, the database's clock is off, not theirs: then theirs count as right.
    """
    rows = source.rows((_SQL / "node_clocks.sql").read_text("utf-8"), {"cluster": cluster})
    by_offset: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        by_offset[round(row["offset_s"] / _ALIKE_S)].add(row["node"])
    spans: dict[str, list[ClockSpan]] = defaultdict(list)
    for row in rows:
        number = round(row["offset_s"] / _ALIKE_S)
        alike = set().union(*(by_offset.get(number + i, ()) for i in (-1, 0, 1)))
        if len(alike) <= max(1, row["n_agents"] / 2):
            offset = timedelta(seconds=min(row["offset_s"], 10 * MOST.total_seconds()))
            spans[row["node"]].append(ClockSpan(row["from_at"], row["to_at"], offset))
    return NodeClocks(spans, lambda ids: _receipts(source, ids))


def _receipts(source: store.Store, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    given: Mapping[str, Any] = {"ids": [str(i) for i in ids]}
    found = source.rows((_SQL / "event_receipts.sql").read_text("utf-8"), given)
    return {row["event_id"]: row["received_at"] for row in found}
