"""Which events may act at all: seen by the node itself, fresh, still true by the agent's latest beat, and there to stay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.control_plane.policy import view
from probing_cluster.core import clock, records, settings, vocabulary

_BEATS_MISSED = 3
_LEAST_BEAT_AGE_S = 30.0
_READ_LATE = timedelta(seconds=10)
"""Two sources report one fault no further apart than this."""
_NOTICED = timedelta(seconds=10)
"""A drain that a person lifts is recorded as ended no later than this afterwards."""


def why_not(event: records.HealthEvent, fleet_view: view.View, policy: settings.PolicySettings) -> str:
    """Why `event` is evidence only; empty when it may act."""
    if event.severity not in (records.Severity.HIGH, records.Severity.LOW):
        return "its severity asks for nothing"
    if event.source not in vocabulary.ACTING_SOURCES:
        return f"source {event.source} never acts"
    age_s = (fleet_view.now - (event.last_at or event.at)).total_seconds()
    overdue = event.event_id in fleet_view.overdue
    if not overdue and not -policy.fresh_s <= age_s <= policy.fresh_s + fleet_view.outage_s:
        return f"not fresh: {age_s:.0f} s old"
    beat = fleet_view.heartbeats.get(event.node)
    if beat is None or not is_current(beat, fleet_view.silent_s.get(event.node)):
        return "no current heartbeat confirms it"
    if beat.at < event.observed_at:
        return "the latest heartbeat is older than it"
    fault = fault_of(beat, event)
    if fault is None:
        return "the agent no longer sees it"
    if _lived_with(event, fault, fleet_view):
        return "the node was put back although it stands"
    if has_stood(beat, event.kind, event.code, fault, policy):
        return ""
    return f"it has not stood for {policy.hold_s:g} s yet"


def is_current(beat: records.AgentHeartbeat, silent_s: float | None) -> bool:
    """Whether the beat tells the present: heard within three beats, by the database's clock."""
    return silent_s is not None and silent_s <= max(_BEATS_MISSED * beat.beat_s, _LEAST_BEAT_AGE_S)


def fault_of(beat: records.AgentHeartbeat, event: records.HealthEvent) -> Mapping[str, Any] | None:
    """The fault in the agent's present state that `event` is about."""
    key = f"{event.kind}:{event.device or event.pci_bus_id or ''}"
    for name, fault in beat.faults.items():
        if str(event.event_id) in {fault.get("event_id"), *(fault.get("event_ids") or ())}:
            return dict(fault)
        # The agent remembers few ids of a fault that repeats; part and code name it as well. An event from before this
        # fault began is of an earlier one that ended.
        again = event.at + _READ_LATE >= began(fault)
        if again and name == key and fault.get("code") in (None, event.code):
            return dict(fault)
    return None


def is_held(kind: str, code: str | None, policy: settings.PolicySettings) -> bool:
    """Whether a fault often ends by itself and so must stand before it acts; a check is held as what it looks at is."""
    behind = vocabulary.KIND_OF_CHECK.get(code or "", kind) if kind == "check" else kind
    return behind in policy.hold_kinds


def has_stood(
    beat: records.AgentHeartbeat,
    kind: str,
    code: str | None,
    fault: Mapping[str, Any],
    policy: settings.PolicySettings,
) -> bool:
    """Whether a fault that may end by itself has stood for long enough, by the node's own clock.

    What the kernel said once stands since it was last said: a link that flaps has not been down since the first flap.
    A check looks again at the next sweep only: until then its word is as old as the sweep, however new the heartbeat.
    """
    if not is_held(kind, code, policy):
        return True
    confirmed = fault.get("confirmed_at")
    since = confirmed if fault.get("latched") else fault.get("since")
    until = confirmed if kind == "check" else clock.iso_z(beat.at)
    if since is None or until is None:
        return False
    lasted = datetime.fromisoformat(until) - datetime.fromisoformat(since)
    return lasted.total_seconds() >= policy.hold_s


def high_faults(
    beat: records.AgentHeartbeat, policy: settings.PolicySettings
) -> dict[str, Mapping[str, Any]]:
    """The hard faults the agent confirms right now, and that have stood for long enough to act."""
    return {
        name: fault
        for name, fault in beat.faults.items()
        if fault.get("severity") == records.Severity.HIGH.value
        and has_stood(beat, name.partition(":")[0], fault.get("code"), fault, policy)
    }


def _lived_with(event: records.HealthEvent, fault: Mapping[str, Any], fleet_view: view.View) -> bool:
    """Whether the node was put back after a drain for the very fault of the event, and the fault has not come anew since.

    The events alone cannot say: those of a mended fault are fresh for minutes, and a fault that stands makes new ones.
    """
    in_fault = {str(fault.get("event_id")), *map(str, fault.get("event_ids") or ())}
    # The kernel's word on a hard fault stands until a reboot: said once more, it has struck again.
    strikes = event.severity is records.Severity.HIGH and str(event.event_id) in in_fault
    return any(
        (_names_nothing(d) or bool({str(i) for i in d.event_ids} & {str(event.event_id), *in_fault}))
        and d.ended_at is not None
        and lifted_over(d, fault)
        and not (strikes and event.event_id not in d.event_ids and event.at > d.ended_at - _NOTICED)
        for d in fleet_view.drains_of(event.node)
    )


def is_accepted(node: str, fault: Mapping[str, Any], fleet_view: view.View) -> bool:
    """Whether a person's own drain of the node was lifted although the fault stood."""
    return any(_names_nothing(d) and lifted_over(d, fault) for d in fleet_view.drains_of(node))


def lifted_over(drain: records.Drain, fault: Mapping[str, Any]) -> bool:
    """Whether a drain was lifted after the fault began, which still stands."""
    over = (drain.action, drain.state) == ("drain", "resumed")
    return over and drain.ended_at is not None and began(fault) <= drain.ended_at


def _names_nothing(drain: records.Drain) -> bool:
    """Whether a person drained it with words instead of evidence: who lifts such a drain accepts whatever stood then."""
    return drain.owner != "probing" and not drain.event_ids


def began(fault: Mapping[str, Any]) -> datetime:
    """The fault's `since`; long ago when its agent does not say."""
    try:
        return datetime.fromisoformat(str(fault.get("since")))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
