"""A GPU that no longer answers: Xid 79, NVML's "GPU is lost"."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, gpus

CAUSE = "gpu_lost"
SIGHTED = frozenset({CAUSE})
_LATE_STEP = timedelta(minutes=5)
"""A rank that does not hold the lost GPU ends its step within this."""
_SHORT = timedelta(minutes=15)
"""A job on a node that lacks one of its GPUs usually fails within this; a longer one may not have needed it."""

_WHOLE_NODE = 4
"""Usual least number of GPUs of a node whose GPU falls off the bus."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per lost GPU; sightings by several sources are one fault.

    PCIe errors and the baseboard's critical interrupt on the same node are added as evidence.
    """
    outside = [s for s in view.of("pcie") if s.event.kind in ("pcie_aer", "pcie_link", "ipmi")]
    made = claims.collect(view, CAUSE, "gpu_lost", view.of(CAUSE), _ran_beside_it(view))
    for claim in made:
        near = [s for s in outside if s.event.node == claim.node and _same_bus(s, claim)]
        extra = tuple(s.event for s in near if s.event.event_id not in {e.event_id for e in claim.evidence})
        yield claims.replace_claim(claim, evidence=claim.evidence + extra) if extra else claim


def _ran_beside_it(view: evidence_view.EvidenceView) -> claims.Adjust:
    """Lowers the weight for a job that ran on after the loss: it may not have needed the GPU."""
    step_at = view.case.last_progress_at

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if not sighting.still_active:
            return weight
        if step_at is not None and step_at > max(sighting.at, view.start_at) + _LATE_STEP:
            return weight * 0.5
        if sighting.at < view.start_at and view.attempt.n_gpus is None:
            return weight * 0.5  # it may not have asked for a GPU
        long_before = sighting.at < view.start_at and view.end_at - view.start_at > _SHORT
        if need_not_hold(view, sighting):
            return min(weight, 0.7)
        return min(weight, 0.6) if long_before else weight

    return adjust


def need_not_hold(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True if it was ended from outside and held so few of the node's GPUs that the lost one may be another job's."""
    return (
        sighting.hold is gpus.PartCertainty.WHOLE
        and 0 < view.gpus_per_node < _WHOLE_NODE
        and view.state in ("TIMEOUT", "DEADLINE", "CANCELLED")
    )


def _same_bus(sighting: evidence_view.CaseSighting, claim: claims.Claim) -> bool:
    """True if the PCIe event may be about the claim's GPU or a port above it."""
    if sighting.gpu is not None:
        return sighting.gpu == claim.gpu
    return sighting.hold is not gpus.PartCertainty.NOT
