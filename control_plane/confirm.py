"""Which events may act at all: seen by the node itself, fresh, and still true by the agent's latest beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.control_plane import view
from probing_cluster.core import records

ACTING_SOURCES = frozenset({"kernel", "nvml", "sysfs", "mount", "check", "service", "ipmi"})
"""Sources that only the node's root can write; what a job writes, or a file says, never acts."""

_BEATS_MISSED = 3
_LEAST_BEAT_AGE_S = 30.0


def why_not(event: records.HealthEvent, seen: view.View, fresh_s: float) -> str:
    """Why `event` is evidence only; empty when it may act."""
    if event.severity not in (records.Severity.HIGH, records.Severity.LOW):
        return "its severity asks for nothing"
    if event.source not in ACTING_SOURCES:
        return f"source {event.source} never acts"
    age_s = (seen.now - (event.last_at or event.at)).total_seconds()
    if abs(age_s) > fresh_s:
        return f"not fresh: {age_s:.0f} s old"
    beat = seen.heartbeats.get(event.node)
    if beat is None or not is_current(beat, seen.silent_s.get(event.node)):
        return "no current heartbeat confirms it"
    if beat.at < event.observed_at:
        return "the latest heartbeat is older than it"
    return "" if fault_of(beat, event) is not None else "the agent no longer sees it"


def is_current(beat: records.AgentHeartbeat, silent_s: float | None) -> bool:
    """Whether the beat tells the present: heard within three beats, by the database's clock."""
    return silent_s is not None and silent_s <= max(_BEATS_MISSED * beat.beat_s, _LEAST_BEAT_AGE_S)


def fault_of(beat: records.AgentHeartbeat, event: records.HealthEvent) -> Mapping[str, Any] | None:
    """The fault in the agent's present state that `event` is about."""
    key = f"{event.kind}:{event.device or event.pci_bus_id or ''}"
    for name, fault in beat.faults.items():
        if str(event.event_id) in {fault.get("event_id"), *(fault.get("event_ids") or ())}:
            return dict(fault)
        # The agent remembers few ids of a fault that repeats; part and code name it as well.
        if name == key and fault.get("code") in (None, event.code):
            return dict(fault)
    return None


def high_faults(beat: records.AgentHeartbeat) -> dict[str, Mapping[str, Any]]:
    """The hard faults the agent confirms right now."""
    return {k: f for k, f in beat.faults.items() if f.get("severity") == records.Severity.HIGH.value}
