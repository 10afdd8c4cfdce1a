"""Nodes whose clocks were off, by the offset that their heartbeats show: gives what they recorded the times of the server's clock."""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import records
from probing_cluster.db import store

MAX_CORRECTED = timedelta(seconds=cases.CORRECTED_S)
"""Greatest offset that is corrected. A clock further off was never set: nothing on its node can be dated."""
_BEAT = timedelta(seconds=15)
"""A clock may be set this long before a heartbeat shows it."""
_ALIKE_S = 60.0
"""Offsets within about this are the same: the server's clock is off if most nodes have it at one time."""
_SQL = Path(__file__).parent / "sql"
_RECEIVED = (
    "SELECT h.received_at FROM probing.agent_heartbeat h WHERE h.cluster = :cluster ORDER BY h.received_at"
)
_CLUSTERS = "SELECT DISTINCT c.cluster FROM probing.node_clock c ORDER BY c.cluster"


class ClockSpan(NamedTuple):
    """A time in which a node's clock was off by much the same."""

    from_at: datetime
    """By the server's clock, as `to_at`."""
    to_at: datetime
    offset: timedelta
    """How far the node's clock was ahead; negative = behind."""
    is_current: bool = False
    """True if the node's latest heartbeat shows this offset."""
    is_settled: bool = True
    """False while agents may not have sent a heartbeat since it began: the server's clock may be off."""

    def meets(self, since: datetime, until: datetime) -> bool:
        """True if the clock was off so at some instant between the two, by the server's clock."""
        return self.from_at - _BEAT <= until and self.to_at + _BEAT >= since

    def is_of(self, at: datetime, stored_at: datetime) -> bool:
        """True if a record that the server stored at `stored_at` has the time `at` from this clock.

        Around the span's bounds the clock may have been right: there the reading that is nearer to `stored_at` counts.
        """
        if self.from_at <= stored_at <= self.to_at:
            return True
        return self.meets(stored_at, stored_at) and abs(at - self.offset - stored_at) < abs(at - stored_at)


@dataclasses.dataclass(frozen=True)
class NodeClocks:
    """The clocks of one cluster's nodes that were ever off; every other node's is right."""

    spans: Mapping[str, Sequence[ClockSpan]] = dataclasses.field(default_factory=dict)

    def offsets_s(self, nodes: Iterable[str], since: datetime, until: datetime) -> dict[str, float]:
        """Node to the seconds by which its clock was ahead between the two instants; nodes with a right clock are missing."""
        found = {n: s for n in nodes for s in self.spans.get(n, ()) if s.meets(since, until)}
        return {n: s.offset.total_seconds() for n, s in found.items()}

    def allocation(
        self, row: records.JobAllocation, received_at: datetime | None, updated_at: datetime | None
    ) -> records.JobAllocation:
        """A Prolog's record with the times of the server's clock, which stored its first report and its latest at these instants.

        An instant of None is not known; then the record keeps the node's time.
        """
        released_at = row.released_at
        if released_at is not None:
            released_at -= self._offset(row.node, released_at, updated_at)
        return dataclasses.replace(
            row, at=row.at - self._offset(row.node, row.at, received_at), released_at=released_at
        )

    def heartbeat(self, beat: records.AgentHeartbeat) -> records.AgentHeartbeat:
        """A node's latest heartbeat and the beginnings of its faults, with the times of the server's clock."""
        offsets = [
            s.offset for s in self.spans.get(beat.node, ()) if s.is_current and abs(s.offset) <= MAX_CORRECTED
        ]
        if not offsets:
            return beat
        faults = {name: _moved(fault, offsets[-1]) for name, fault in beat.faults.items()}
        return dataclasses.replace(beat, at=beat.at - offsets[-1], faults=faults)

    def _offset(self, node: str, at: datetime, stored_at: datetime | None) -> timedelta:
        """How far ahead the clock was that dated a record; zero if it was right or never set, or if this is not known."""
        for span in reversed(self.spans.get(node, ())):
            if abs(span.offset) <= MAX_CORRECTED and stored_at is not None and span.is_of(at, stored_at):
                return span.offset
        return timedelta()


def _moved(fault: Mapping[str, Any], offset: timedelta) -> dict[str, Any]:
    """A fault of a heartbeat, whose instants are text."""
    found = dict(fault)
    for name in ("since", "confirmed_at"):
        try:
            found[name] = (datetime.fromisoformat(found[name]) - offset).isoformat()
        except (KeyError, TypeError, ValueError):
            continue  # the agent does not say
    return found


def read(source: store.Store, cluster: str) -> NodeClocks:
    """The clocks of a cluster's nodes.

    If most agents show the same offset at one time, the database's clock was off then, not theirs: theirs count as right.
    """
    rows = source.rows((_SQL / "node_clocks.sql").read_text("utf-8"), {"cluster": cluster})
    received_at = [row["received_at"] for row in source.rows(_RECEIVED, {"cluster": cluster})] if rows else []
    spans: dict[str, list[ClockSpan]] = defaultdict(list)
    for row, n_alike in zip(rows, _n_alike(rows), strict=True):
        n_agents = len(received_at) - bisect.bisect_left(received_at, row["from_at"] - _BEAT)
        if row["is_sure"] and n_alike <= max(1, n_agents / 2):
            offset = timedelta(seconds=min(row["offset_s"], 10 * cases.CORRECTED_S))
            span = ClockSpan(row["from_at"], row["to_at"], offset, row["is_current"], row["is_settled"])
            spans[row["node"]].append(span)
    return NodeClocks(spans)


def _n_alike(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """For each span: the number of nodes whose clocks were off by about as much when it had just begun, its own included.

    Those that are not yet sure count, too: the database's clock jumps for all, and some clocks are sure before the others.
    """
    by_offset: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_offset[_rounded(row)].append(row)
    counted = {
        number: _counts([row for near in (-1, 0, 1) for row in by_offset.get(number + near, ())])
        for number in by_offset
    }
    found = []
    for row in rows:
        times, counts = counted[_rounded(row)]
        # By then every other agent has sent a heartbeat, too.
        at = min(row["to_at"], row["from_at"] + 2 * _BEAT)
        found.append(counts[bisect.bisect_right(times, at) - 1])
    return found


def _rounded(row: Mapping[str, Any]) -> int:
    minutes: int = round(row["offset_s"] / _ALIKE_S)
    return minutes


def _counts(rows: Iterable[Mapping[str, Any]]) -> tuple[list[datetime], list[int]]:
    """Instants, in order, and the number of nodes with a span that lasts from each of them to the next."""
    marks = sorted(
        mark
        for row in rows
        for mark in ((row["from_at"] - _BEAT, 1, row["node"]), (row["to_at"] + _BEAT, -1, row["node"]))
    )
    off: Counter[str] = Counter()
    counts = []
    n_nodes = 0
    for _, step, node in marks:
        n_nodes -= off[node] > 0
        off[node] += step
        n_nodes += off[node] > 0
        counts.append(n_nodes)
    return [at for at, *_ in marks], counts


def correct(source: store.Store) -> int:
    """Gives the events of nodes whose clocks were off the times of the server's clock; the number of events. Repeating it does no harm.

    Called before each pass and by the service every few seconds: every reader then finds one clock.
    """
    n_events = 0
    for cluster in [row["cluster"] for row in source.rows(_CLUSTERS, {})]:
        spans = [
            (node, span.from_at, span.to_at, span.offset.total_seconds())
            for node, some in read(source, cluster).spans.items()
            for span in some
            if span.is_settled and abs(span.offset) <= MAX_CORRECTED
        ]
        n_events += source.correct_times(cluster, spans) if spans else 0
    return n_events
