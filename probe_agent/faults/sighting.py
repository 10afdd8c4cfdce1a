"""What a source saw, before it has an identity; and the making of the event from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from probing_cluster.core import records, sanitize
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import gpus


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One thing seen; `position` is where the source saw it (see records.make_event_id), never wall time."""

    source: str
    position: str
    at: datetime
    kind: str
    severity: records.Severity
    message: str
    code: str | None = None
    device: str | None = None
    pci_bus_id: str | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    process: str | None = None
    job_id: int | None = None
    measured: float | None = None
    threshold: float | None = None
    unit: str | None = None
    count: int = 1
    stream_s: float | None = None
    """The source's own time in seconds where it can storm and equal sightings may be folded; None = each one counts alone."""
    latches: bool = True
    """False where the source's own next reading says whether it still stands."""
    shared: bool = False
    """True where other nodes can see the very same thing: whoever reports it, it is one event."""
    detail: Mapping[str, Any] = field(default_factory=dict)


def to_event(
    sighting: Sighting, *, identity: identity.Identity, inventory: gpus.Inventory, observed_at: datetime
) -> records.HealthEvent:
    """The event of a sighting, with the GPU's index and UUID added where the node's inventory knows them.

    The identity depends on cluster, node, source and position alone, so knowing more later changes nothing;
    the node is left out of it where the sighting is `shared`.
    """
    gpu = inventory.by_uuid(sighting.gpu_uuid) or inventory.by_pci(sighting.pci_bus_id)
    return records.HealthEvent(
        event_id=records.make_event_id(
            identity.cluster, "" if sighting.shared else identity.node, sighting.source, sighting.position
        ),
        cluster=identity.cluster,
        node=identity.node,
        at=sighting.at,
        observed_at=observed_at,
        kind=sighting.kind,
        code=sighting.code,
        severity=sighting.severity,
        device=gpu.device if gpu is not None else _clean(sighting.device),
        pci_bus_id=sighting.pci_bus_id or (gpu.pci_bus_id if gpu is not None else None),
        gpu_uuid=sighting.gpu_uuid or (gpu.uuid if gpu is not None else None),
        pid=sighting.pid,
        process=_clean(sighting.process),
        job_id=sighting.job_id,
        count=sighting.count,
        source=sighting.source,
        message=sanitize.clean(sighting.message),
        measured=sighting.measured,
        threshold=sighting.threshold,
        unit=sighting.unit,
        detail=sanitize.clean_all(sighting.detail),
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else sanitize.clean(text, 256)
