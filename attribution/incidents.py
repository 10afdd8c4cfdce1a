"""One fault with many victims: a switch, a file server or a power feed strikes many nodes at once."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.attribution import findings, signatures
from probing_cluster.core import records

GAP = timedelta(seconds=120)
"""Events of one incident follow each other closer than this."""
STEP, REACH = timedelta(hours=1), timedelta(days=1)
"""How a span is widened to hold whole chains, and how far at most."""
MIN_NODES = 3
"""From so many nodes on, one cause at one time is one incident."""

WIDE = frozenset({"ib_link", "eth_link", "filesystem_mount", "thermal_power", "node_lost", "node_reboot", "kernel_panic"})  # fmt: skip
"""Causes that a part shared by many nodes can have."""
_FAULTY = (records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Incident:
    """One fault seen on many nodes."""

    incident_id: uuid.UUID
    cause: str
    nodes: frozenset[str]
    event_ids: frozenset[uuid.UUID]


def find(events: Iterable[records.HealthEvent]) -> list[Incident]:
    """The incidents among events of any kind: per cause, chains of close events over enough nodes."""
    by_cause: dict[str, list[records.HealthEvent]] = {}
    for event in sorted(events, key=lambda e: (e.at, e.event_id)):
        if _counts(event):
            by_cause.setdefault(signatures.of(event).cause, []).append(event)
    return [i for cause, seen in sorted(by_cause.items()) for i in _chains(cause, seen)]


def _counts(event: records.HealthEvent) -> bool:
    signature = signatures.of(event)
    return signature.cause in WIDE and signature.role is signatures.Role.ROOT


def _chains(cause: str, seen: Sequence[records.HealthEvent]) -> Iterable[Incident]:
    chain: list[records.HealthEvent] = []
    for event in seen:
        if chain and event.at - chain[-1].at > GAP:
            yield from _incident(cause, chain)
            chain = []
        chain.append(event)
    yield from _incident(cause, chain)


def _incident(cause: str, chain: Sequence[records.HealthEvent]) -> Iterable[Incident]:
    nodes = frozenset(e.node for e in chain)
    if len(nodes) >= MIN_NODES:
        yield Incident(
            incident_id=incident_id(cause, chain[0]),
            cause=cause,
            nodes=nodes,
            event_ids=frozenset(e.event_id for e in chain),
        )


def incident_id(cause: str, first: records.HealthEvent) -> uuid.UUID:
    """The same incident has the same id in every run: it is named by its cause and first event."""
    return records.make_event_id(first.cluster, "", "incident", f"{cause}:{first.event_id}")


def assign(
    verdicts: Sequence[records.Verdict],
    found: Iterable[Incident],
    events: Mapping[uuid.UUID, records.HealthEvent],
) -> list[records.Verdict]:
    """The verdicts with their incident, whoever else is judged with them.

    A wide incident has an id of its own; any other fault that a node showed is named by its event, the verdict's
    first evidence, so that all whom it ended share it. What only the job's side says is nobody else's fault.
    """
    wide = {e: i.incident_id for i in found for e in i.event_ids}
    made = []
    for verdict in verdicts:
        chosen = next((wide[e] for e in verdict.evidence if e in wide and verdict.cause in WIDE), None)
        if chosen is None and verdict.domain in _FAULTY:
            first = events.get(verdict.evidence[0]) if verdict.evidence else None
            chosen = None if first is None or findings.is_finding(first) else first.event_id
        made.append(
            dataclasses.replace(verdict, incident_id=chosen) if chosen != verdict.incident_id else verdict
        )
    return made


def whole(
    events: Callable[[datetime, datetime], Sequence[records.HealthEvent]], since: datetime, until: datetime
) -> Sequence[records.HealthEvent]:
    """What `events` gives for a span, the span widened until no chain can begin before or end after it, by a day at most."""
    first, last = since, until
    while True:
        seen = [e for e in events(first, last) if _counts(e)]
        early = any(e.at - first <= GAP for e in seen) and first > since - REACH
        late = any(last - e.at <= GAP for e in seen) and last < until + REACH
        if not early and not late:
            return seen
        first, last = first - STEP * early, last + STEP * late
