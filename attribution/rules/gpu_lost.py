"""A GPU that no longer answers: Xid 79, NVML's "GPU is lost"."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from probing_cluster.attribution import claims, gpus, scene

CAUSE = "gpu_lost"


def rule(case: scene.Scene) -> Iterable[claims.Claim]:
    """One claim per GPU that was lost; sightings of one GPU by several sources are one fault.

    PCIe errors and the baseboard's critical interrupt on the same node see the same fault from outside.
    """
    outside = [s for s in case.of("pcie") if s.event.kind in ("pcie_aer", "pcie_link", "ipmi")]
    made = claims.collect(case, CAUSE, "gpu_lost", case.of(CAUSE))
    for claim in made:
        near = [s for s in outside if s.event.node == claim.node and _same_bus(s, claim)]
        extra = tuple(s.event for s in near if s.event.event_id not in {e.event_id for e in claim.evidence})
        yield dataclasses.replace(claim, evidence=claim.evidence + extra)


def _same_bus(seen: scene.Sighting, claim: claims.Claim) -> bool:
    """True when the PCIe event can be the claim's GPU or a port above it."""
    if seen.gpu is not None:
        return seen.gpu == claim.gpu
    return seen.hold is not gpus.Hold.NOT
