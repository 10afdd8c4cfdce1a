"""Faults of a part that many nodes share: one switch is not forty broken nodes."""

from __future__ import annotations

from typing import Any

from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.verdict import signatures
from probing_cluster.control_plane.policy import view
from probing_cluster.core import records


def is_of(name: str, fault: Any) -> bool:
    """Whether a fault of a heartbeat (`ib_link:mlx5_0`, its value) can be that of a part many nodes share."""
    code = fault.get("code") if isinstance(fault, dict) else None
    kind = name.partition(":")[0]
    return incidents.is_shared(
        signatures.find(kind, code if isinstance(code, str) else None, records.Severity.HIGH)
    )


def why_spared(event: records.HealthEvent, fleet_view: view.View) -> str:
    """Why a node is not drained for this event; empty when it may be: the place, not the node, is the suspect."""
    place = fleet_view.shared
    if place is None or event.node not in fleet_view.shared_nodes or not incidents.counts(event):
        return ""
    return f"{place.kind} {place.name} is the suspect, not the node: {place.sentence}"
