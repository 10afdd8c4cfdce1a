"""Faults that stand, and about which nobody could decide while they were fresh: the service or its database was away, or the node was in maintenance."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.control_plane.policy import confirm, view
from probing_cluster.core import records, settings
from probing_cluster.slurm_plugins.acts import node_events

LONGEST = timedelta(days=7)
"""An older fault is left to people: our decisions are looked at no further back."""
_ACTING = frozenset({records.Severity.HIGH.value, records.Severity.LOW.value})


def find(fleet_view: view.View, policy: settings.PolicySettings) -> dict[uuid.UUID, tuple[str, datetime]]:
    """The first event of each such fault, with its node and when the fault began.

    A drain of any kind that was lifted since then is a decision: whoever brought the node back keeps it.
    """
    fresh, found = timedelta(seconds=policy.fresh_s), {}
    for node, beat in fleet_view.heartbeats.items():
        if not confirm.is_current(beat, fleet_view.silent_s.get(node)):
            continue
        for fault in beat.faults.values():
            began = confirm.began(fault)
            if fault.get("severity") not in _ACTING or not fresh < fleet_view.now - began <= LONGEST:
                continue
            ids = {str(i) for i in (fault.get("event_id"), *(fault.get("event_ids") or ())) if i}
            drains = [d for d in fleet_view.drains_of(node) if d.action == "drain"]
            decided = any(
                confirm.lifted_over(d, fault)
                # It stands, or somebody lifted it a moment ago and its row does not say so yet.
                or (d.state == "done" and d.ended_at is None)
                or (ids & {str(i) for i in d.event_ids} and not view.left_open(d))
                for d in drains
            )
            if not decided and (first := _uuid(fault.get("event_id"))):
                found[first] = (node, began)
    return found


def brought_back(node: str, began: datetime, outages: Iterable[view.Outage]) -> bool:
    """Whether a person had the node out of service by Slurm's own word, and back since the fault began."""
    return any(
        o.node == node and o.end_at is not None and o.end_at >= began and node_events.is_a_persons(o.reason)
        for o in outages
    )


def _uuid(text: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(text))
    except ValueError:
        return None
