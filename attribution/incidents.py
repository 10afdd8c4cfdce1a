"""One fault with many victims: a switch, a file server or a power feed strikes many nodes at once."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from probing_cluster.attribution import signatures
from probing_cluster.core import records

GAP = timedelta(seconds=120)
"""Events of one incident follow each other closer than this."""
MIN_NODES = 3
"""From so many nodes on, one cause at one time is one incident."""

WIDE = frozenset({"ib_link", "eth_link", "filesystem_mount", "thermal_power", "node_lost", "node_reboot", "kernel_panic"})  # fmt: skip
"""Causes that a part shared by many nodes can have."""


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
        signature = signatures.of(event)
        if signature.cause in WIDE and signature.role is signatures.Role.ROOT:
            by_cause.setdefault(signature.cause, []).append(event)
    return [i for cause, seen in sorted(by_cause.items()) for i in _chains(cause, seen)]


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
    """The verdicts with their incident: a wide one, or a part several attempts died of."""
    wide = {e: i.incident_id for i in found for e in i.event_ids}
    victims: dict[uuid.UUID, set[tuple[int, object]]] = {}
    for verdict in verdicts:
        for event_id in verdict.evidence[:1]:
            victims.setdefault(event_id, set()).add((verdict.job_id, verdict.submit_at))
    made = []
    for verdict in verdicts:
        first = verdict.evidence[0] if verdict.evidence else None
        chosen = next((wide[e] for e in verdict.evidence if e in wide and verdict.cause in WIDE), None)
        if chosen is None and first is not None and len(victims[first]) > 1 and first in events:
            chosen = incident_id(verdict.cause, events[first])
        made.append(
            dataclasses.replace(verdict, incident_id=chosen) if chosen != verdict.incident_id else verdict
        )
    return made
