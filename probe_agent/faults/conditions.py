"""What is wrong *now* by a source's own reading, and the events of its coming and going.

A polled source judges its readings into conditions. A condition that appears is one event; while it stays
it is only confirmed again; when a reading shows it gone, one `info` event says so. What could not
be read is neither confirmed nor cleared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.probe_agent.faults import gpus
from probing_cluster.probe_agent.faults.sighting import Sighting


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One thing wrong with one part, as the last reading shows it."""

    kind: str
    device: str
    severity: records.Severity
    message: str
    code: str | None = None
    pci_bus_id: str | None = None
    gpu_uuid: str | None = None
    measured: float | None = None
    threshold: float | None = None
    unit: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.code or ''}:{self.device}"


@dataclass(frozen=True, kw_only=True)
class ConditionEdge:
    """Something that happened between two readings: a counter that moved, a link that flapped.

    `value` tells this occurrence from the next: the counter's new value, a sequence number.
    """

    what: Condition
    value: str
    at: datetime | None = None
    latches: bool = True
    """False where a step of a counter is evidence only and a condition says what stands."""
    folds: bool = False
    """True where many may come at once and equal ones may be folded."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What one reading of one source means."""

    present: tuple[Condition, ...] = ()
    edges: tuple[ConditionEdge, ...] = ()
    unknown: frozenset[str] = frozenset()
    """Devices that could not be read: their conditions stay as they were. `*` = the whole source."""
    healthy: frozenset[str] = frozenset()
    """Names and PCI addresses of devices read and found well; they contradict older kernel lines."""
    there: frozenset[str] | None = None
    """Every device of the source, where it can list them all: a latched fault of one that is no longer there is over."""
    reset: frozenset[str] = frozenset()
    """GPU UUIDs seen to have been reset since the last reading."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """What the source wants back next time; persisted with the events."""
    state: str = "ok"
    """For the heartbeat: ok, absent, or what went wrong."""
    inventory: gpus.Inventory | None = None
    """The node's GPUs, from the one source that sees them."""


@dataclass(kw_only=True)
class ActiveCondition:
    """A condition that stands, since when, and the event that said so."""

    condition: Condition
    since: datetime
    event_id: str
    confirmed_at: datetime


@dataclass(kw_only=True)
class Tracker:
    """The standing conditions of one source in one boot."""

    source: str
    boot_id: str
    active: dict[str, ActiveCondition] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def observe(
        self, judged: Judgement, *, at: datetime, event_id: Any
    ) -> tuple[list[Sighting], list[Condition]]:
        """Sightings of what came, happened and went, and the conditions that went; `event_id` maps a position to its id."""
        sightings: list[Sighting] = []
        now = {c.key: c for c in judged.present}
        for key, condition in now.items():
            known = self.active.get(key)
            if known is not None:
                known.condition, known.confirmed_at = condition, at
                continue
            self.counts[key] = self.counts.get(key, 0) + 1
            sighting = self._sighting(condition, f"{key}:on:{self.counts[key]}", at, latches=False)
            self.active[key] = ActiveCondition(
                condition=condition, since=at, event_id=str(event_id(sighting.position)), confirmed_at=at
            )
            sightings.append(sighting)
        sightings += [self._edge(e, at) for e in judged.edges]
        gone = [
            a for k, a in self.active.items() if k not in now and not _unknown(a.condition, judged.unknown)
        ]
        for old in gone:
            del self.active[old.condition.key]
            sightings.append(self._recovery(old, at))
        return sightings, [a.condition for a in gone]

    def to_state(self) -> dict[str, Any]:
        """What survives a restart of the agent."""
        return {
            "boot_id": self.boot_id,
            "counts": self.counts,
            "active": {k: _row(a) for k, a in self.active.items()},
        }

    @classmethod
    def from_state(cls, source: str, boot_id: str, state: Any) -> Tracker:
        """The tracker as it was; conditions of another boot are forgotten (the reading will tell)."""
        if not state or state.get("boot_id") != boot_id:
            return cls(source=source, boot_id=boot_id)
        active = {k: _active(row) for k, row in state["active"].items()}
        return cls(source=source, boot_id=boot_id, active=active, counts=dict(state["counts"]))

    def _sighting(self, what: Condition, position: str, at: datetime, *, latches: bool = True) -> Sighting:
        return Sighting(
            source=self.source,
            position=f"{self.boot_id}:{position}",
            at=at,
            kind=what.kind,
            code=what.code,
            severity=what.severity,
            message=what.message,
            device=what.device,
            pci_bus_id=what.pci_bus_id,
            gpu_uuid=what.gpu_uuid,
            measured=what.measured,
            threshold=what.threshold,
            unit=what.unit,
            latches=latches,
            detail=what.detail,
        )

    def _edge(self, edge: ConditionEdge, at: datetime) -> Sighting:
        what = edge.what
        position = f"{what.device}:{what.kind}:{what.code}:{edge.value}"
        sighting = self._sighting(what, position, edge.at or at, latches=edge.latches)
        return replace(sighting, stream_s=sighting.at.timestamp()) if edge.folds else sighting

    def _recovery(self, old: ActiveCondition, at: datetime) -> Sighting:
        what = old.condition
        lasted_s = max(0.0, (at - old.since).total_seconds())
        recovered = replace(
            what,
            severity=records.Severity.INFO,
            message=f"recovered after {lasted_s:.0f} s: {what.message}",
            detail={**what.detail, "recovered": True, "began": old.event_id, "lasted_s": lasted_s},
        )
        return self._sighting(recovered, f"{what.key}:off:{self.counts.get(what.key, 0)}", at, latches=False)


def _unknown(condition: Condition, unknown: Iterable[str]) -> bool:
    names = set(unknown)
    return "*" in names or condition.device in names


def _row(active: ActiveCondition) -> dict[str, Any]:
    condition = {k: v for k, v in vars(active.condition).items() if v is not None}
    condition["severity"] = str(active.condition.severity)
    condition["detail"] = dict(active.condition.detail)
    return {
        "condition": condition,
        "since": clock.iso_z(active.since),
        "event_id": active.event_id,
        "confirmed_at": clock.iso_z(active.confirmed_at),
    }


def _active(row: Mapping[str, Any]) -> ActiveCondition:
    fields = records.known_fields(Condition, row["condition"])
    fields["severity"] = records.Severity(fields["severity"])
    return ActiveCondition(
        condition=Condition(**fields),
        since=datetime.fromisoformat(row["since"]),
        event_id=row["event_id"],
        confirmed_at=datetime.fromisoformat(row["confirmed_at"]),
    )
