"""Which faults stand on this node right now: a fold over events and present readings.

Two sorts. A *condition* is confirmed by its source's latest reading and ends with it. A *latched* fault
was said once by the kernel (an Xid, a machine check) and no reading can repeat it: it stands until
the node reboots, the GPU is seen to have been reset, a live reading of the same part newer than the line
contradicts it (a link that is up again), or an operator clears it. A line first read long after it was
written latches nothing: it is evidence, not the present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.core import clock, records, vocabulary
from probing_cluster.probe_agent.faults import conditions, gpus, sighting

LATCH_FRESH = timedelta(minutes=5)
"""A line older than this when it is first read is history."""
LOW_STANDS = timedelta(minutes=15)
"""How long a latched low-severity fault stands after it was last seen."""
CONDITION_STANDS = timedelta(minutes=2)
"""How long a condition whose part cannot be read any more still counts as the present."""
_CONTRADICTION_AFTER = timedelta(seconds=2)
"""A healthy reading contradicts a line only when it is this much newer: drivers log before sysfs settles."""
_MAX_IDS = 8

CONTRADICTED_BY = {
    "ib_link": ("infiniband",),
    "eth_link": ("infiniband", "interfaces"),
    "gpu_lost": ("nvml", "amdsmi"),
    "nvlink": ("nvml",),
    "nfs": ("mounts",),
    "lustre": ("mounts",),
    "gpfs": ("mounts",),
    "beegfs": ("mounts",),
    "filesystem": ("mounts",),
}
"""Kind of a kernel line to the sources whose healthy reading of the same part ends it."""

_QUEUE_CODES = frozenset({"tx_timeout", "netdev_watchdog"})
"""A link that is up says nothing about queues that stand still."""

_NEVER_LATCHED = frozenset({"oom", "hung_task", "agent_overrun", "agent_dropped", "node_boot", "check"})


@dataclass(kw_only=True)
class Fault:
    """One fault that stands."""

    kind: str
    device: str
    severity: records.Severity
    since: datetime
    confirmed_at: datetime
    message: str
    source: str
    code: str | None = None
    gpu_uuid: str | None = None
    pci_bus_id: str | None = None
    event_ids: list[str] = field(default_factory=list)
    latched: bool = False

    @property
    def key(self) -> str:
        """`kind:device`, as the heartbeat lists it."""
        return f"{self.kind}:{self.device}"

    @property
    def about_gpu(self) -> bool:
        """True when one GPU is concerned, not the whole node."""
        return self.gpu_uuid is not None or self.device.startswith("gpu")

    def row(self) -> dict[str, Any]:
        """The fault as the heartbeat carries it; `event_id` is its first event, `event_ids` has its last few too."""
        return {
            **records.json_fields(self, "kind", "code", "device", "severity", "since", "confirmed_at"),
            "event_id": self.event_ids[0] if self.event_ids else None,
            **records.json_fields(self, "event_ids", "gpu_uuid", "pci_bus_id", "source"),
            "message": self.message[:300],
            "latched": self.latched,
        }


class Faults:
    """The faults of one node in one boot."""

    def __init__(self, boot_id: str, state: Any = None) -> None:
        self.boot_id = boot_id
        self._latched: dict[str, Fault] = {}
        self._present: dict[str, list[Fault]] = {}
        self._cleared_at: datetime | None = None
        self._cleared: list[Fault] = []
        """Cleared faults whose part failed still: over once it no longer does."""
        self._failing_by: set[str] = set()
        """Sources whose readings showed that it failed: after a restart of the agent they have to be read first."""
        if state and state.get("boot_id") == boot_id:
            self._latched = {k: _from_row(row) for k, row in state["latched"].items()}
            self._cleared = [_from_row(row) for row in state.get("cleared", ())]
            self._failing_by = set(state.get("failing_by", ()))
            cleared_at = state.get("cleared_at")
            self._cleared_at = datetime.fromisoformat(cleared_at) if cleared_at else None

    def fold(self, event: records.HealthEvent, *, now: datetime) -> bool:
        """Take one event in; True when it latched a fault or confirmed one."""
        if event.source not in vocabulary.LATCHING_SOURCES or event.kind in _NEVER_LATCHED:
            return False
        if event.severity is records.Severity.INFO or event.detail.get("recovered"):
            return False
        if now - event.at > LATCH_FRESH:
            return False
        if self._cleared_at is not None and event.observed_at <= self._cleared_at:
            # A clock that was set back since then says so, too, of what it has seen after that.
            was_set_back = event.observed_at <= now < self._cleared_at
            if not was_set_back:
                return False
        device = event.device or event.pci_bus_id or ""
        key = f"{event.kind}:{event.code or ''}:{device}"
        fault = self._latched.get(key)
        if fault is None:
            fault = Fault(
                kind=event.kind,
                code=event.code,
                device=device,
                severity=event.severity,
                since=event.at,
                confirmed_at=event.at,
                message=event.message,
                source=event.source,
                gpu_uuid=event.gpu_uuid,
                pci_bus_id=event.pci_bus_id,
                latched=True,
            )
            self._latched[key] = fault
        fault.confirmed_at = max(fault.confirmed_at, event.at)
        _remember(fault, str(event.event_id))
        return True

    def observe(
        self,
        source: str,
        judged: conditions.Judgement,
        active: Iterable[conditions.ActiveCondition],
        at: datetime,
    ) -> list[Fault]:
        """Take one reading in: its conditions stand, and what it shows healthy or reset ends latched faults, which it returns.

        So does the end of the last fault of a part for what was cleared while that part failed.
        """
        self._present[source] = [
            _of_condition(a, source) for a in active if at - a.confirmed_at <= CONDITION_STANDS
        ]
        over = [f for f in self._latched.values() if self._contradicted(f, source, judged, at)]
        self._drop(lambda f: f in over)
        self._drop(lambda f: f.severity is not records.Severity.HIGH and at - f.confirmed_at > LOW_STANDS)
        if self._cleared and self._failing_by <= self._present.keys():
            over += self.repaired(self._cleared)
        return over

    def clear(self, now: datetime) -> list[Fault]:
        """Ends the latched faults, since a person declares the node repaired, and returns them; nothing observed until `now` latches again."""
        ended = list(self._latched.values())
        self._latched.clear()
        self._cleared_at = now
        return ended

    def repaired(self, cleared: Iterable[Fault]) -> list[Fault]:
        """Those of the cleared faults whose part shows no fault after a new look at it; `observe` returns the others once it shows none."""
        failing = self.active()
        over: list[Fault] = []
        for fault in list(cleared):
            signs = [other for other in failing if _same_part(fault, other)]
            self._failing_by |= {other.source for other in signs if not other.latched}
            alike = (fault.key, fault.code)
            self._cleared = [f for f in self._cleared if (f.key, f.code) != alike]
            (self._cleared if signs else over).append(fault)
        return over

    def reboot(self, boot_id: str) -> None:
        """Another boot: nothing seen before it is the present."""
        self.boot_id = boot_id
        self._cleared_at = None
        self._latched.clear()
        self._cleared.clear()
        self._failing_by.clear()
        self._present.clear()

    def active(self) -> list[Fault]:
        """Every fault that stands, worst first."""
        found = [*self._latched.values(), *(f for faults in self._present.values() for f in faults)]
        return sorted(found, key=lambda f: (f.severity is not records.Severity.HIGH, f.since))

    def rows(self) -> dict[str, dict[str, Any]]:
        """The heartbeat's faults: `kind:device` to the worst fault of that key, with the event ids of all of them."""
        rows: dict[str, dict[str, Any]] = {}
        for fault in self.active():
            row = rows.setdefault(fault.key, fault.row())
            row["event_ids"] = list(dict.fromkeys([*row["event_ids"], *fault.event_ids]))[-_MAX_IDS:]
        return rows

    def against(self, wanted: Collection[str] | None, *, whole_node: bool) -> list[Fault]:
        """Hard faults that concern a job with these GPU UUIDs (None = they are not known).

        A fault of one GPU concerns the job that holds that GPU, or one that holds the whole node. When
        neither can be known the job is not concerned: refusing on a guess is worse.
        """
        return [
            f
            for f in self.active()
            if f.severity is records.Severity.HIGH
            and (not f.about_gpu or whole_node or (wanted is not None and f.gpu_uuid in wanted))
        ]

    def to_state(self) -> dict[str, Any]:
        """What survives a restart of the agent: the latched faults; conditions are read again."""
        cleared_at = clock.iso_z(self._cleared_at) if self._cleared_at is not None else None
        latched = {k: f.row() for k, f in self._latched.items()}
        cleared = [f.row() for f in self._cleared]
        return {
            "boot_id": self.boot_id,
            "latched": latched,
            "cleared_at": cleared_at,
            "cleared": cleared,
            "failing_by": sorted(self._failing_by),
        }

    def _contradicted(self, fault: Fault, source: str, judged: conditions.Judgement, at: datetime) -> bool:
        if fault.gpu_uuid is not None and fault.gpu_uuid in judged.reset:
            return True
        if fault.code in records.ADAPTER_CODES or (fault.code in _QUEUE_CODES and source == "interfaces"):
            return False
        if source not in CONTRADICTED_BY.get(fault.kind, ()):
            return False
        if at - fault.confirmed_at < _CONTRADICTION_AFTER:
            return False
        names = {fault.device, fault.pci_bus_id, gpus.pci_key(fault.pci_bus_id), gpus.pci_key(fault.device)}
        if (
            judged.there is not None
            and fault.device
            and not fault.pci_bus_id
            and fault.device not in judged.there
        ):
            return True
        return bool((names - {None, ""}) & judged.healthy)

    def _drop(self, which: Callable[[Fault], bool]) -> None:
        self._latched = {k: f for k, f in self._latched.items() if not which(f)}


def _same_part(fault: Fault, other: Fault) -> bool:
    """True if both are of one GPU or device; faults that name no part are the same if their kinds are."""
    if fault.gpu_uuid is not None and fault.gpu_uuid == other.gpu_uuid:
        return True
    address = gpus.pci_key(fault.pci_bus_id)
    if address is not None and address == gpus.pci_key(other.pci_bus_id):
        return True
    return fault.device == other.device and (bool(fault.device) or fault.kind == other.kind)


def recovery(
    fault: Fault, source: str, boot_id: str, at: datetime, words: str = "recovered"
) -> sighting.Sighting:
    """The end of a latched fault, as the reading of `source`, or a person (`words`), showed it; the kernel need never report it."""
    lasted_s = max(0.0, (at - fault.since).total_seconds())
    began = fault.event_ids[0] if fault.event_ids else None
    return sighting.Sighting(
        source=source,
        position=f"{boot_id}:{fault.key}:{fault.code or ''}:over:{clock.iso_z(fault.confirmed_at)}",
        at=at,
        kind=fault.kind,
        code=fault.code,
        severity=records.Severity.INFO,
        message=f"{words} after {lasted_s:.0f} s: {fault.message}",
        device=fault.device or None,
        pci_bus_id=fault.pci_bus_id,
        gpu_uuid=fault.gpu_uuid,
        latches=False,
        detail={"recovered": True, "began": began, "lasted_s": lasted_s},
    )


def _remember(fault: Fault, event_id: str) -> None:
    if event_id not in fault.event_ids:
        fault.event_ids = [*fault.event_ids[:1], *fault.event_ids[1:][-(_MAX_IDS - 2) :], event_id]


def _of_condition(active: conditions.ActiveCondition, source: str) -> Fault:
    what = active.condition
    return Fault(
        kind=what.kind,
        code=what.code,
        device=what.device,
        severity=what.severity,
        since=active.since,
        confirmed_at=active.confirmed_at,
        message=what.message,
        source=source,
        gpu_uuid=what.gpu_uuid,
        pci_bus_id=what.pci_bus_id,
        event_ids=[active.event_id],
    )


def _from_row(row: Mapping[str, Any]) -> Fault:
    return Fault(
        kind=row["kind"],
        code=row["code"],
        device=row["device"],
        severity=records.Severity(row["severity"]),
        since=datetime.fromisoformat(row["since"]),
        confirmed_at=datetime.fromisoformat(row["confirmed_at"]),
        message=row["message"],
        source=row["source"],
        gpu_uuid=row["gpu_uuid"],
        pci_bus_id=row["pci_bus_id"],
        event_ids=list(row["event_ids"]),
        latched=True,
    )
