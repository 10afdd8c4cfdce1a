"""A GPU that no longer answers: Xid 79, NVML's "GPU is lost"."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from probing_cluster.attribution.verdict import claims, evidence_view, gpus

CAUSE = "gpu_lost"
SIGHTED = frozenset({CAUSE})
_LATE_STEP = timedelta(minutes=5)
"""A rank that does not hold the lost GPU still ends its step within this."""
_SHORT = timedelta(minutes=15)
"""A job given a node without one of its GPUs mostly fails within this; one that ran longer may not have needed it."""

_WHOLE_NODE = 4
"""A node with a GPU that falls off its bus mostly has at least this many."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per GPU that was lost; sightings of one GPU by several sources are one fault.

    PCIe errors and the baseboard's critical interrupt on the same node see the same fault from outside.
    """
    outside = [s for s in view.of("pcie") if s.event.kind in ("pcie_aer", "pcie_link", "ipmi")]
    made = claims.collect(view, CAUSE, "gpu_lost", view.of(CAUSE), _ran_beside_it(view))
    for claim in made:
        near = [s for s in outside if s.event.node == claim.node and _same_bus(s, claim)]
        extra = tuple(s.event for s in near if s.event.event_id not in {e.event_id for e in claim.evidence})
        yield claims.replace_claim(claim, evidence=claim.evidence + extra) if extra else claim


def _ran_beside_it(view: evidence_view.EvidenceView) -> claims.Adjust:
    """A job that trained on for long after the GPU was lost may not have needed it."""
    step_at = view.case.last_progress_at

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if not sighting.still_active:
            return weight
        if step_at is not None and step_at > max(sighting.at, view.start_at) + _LATE_STEP:
            return weight * 0.5
        if sighting.at < view.start_at and view.attempt.n_gpus is None:
            return weight * 0.5  # nobody knows that it wanted any GPU
        long_before = sighting.at < view.start_at and view.end_at - view.start_at > _SHORT
        if need_not_hold(view, sighting):
            return min(weight, 0.7)
        return min(weight, 0.6) if long_before else weight

    return adjust


def need_not_hold(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """Whether it was ended from outside and has so few GPUs of the node that the lost one may be none of them."""
    per_node = (view.attempt.n_gpus or 0) / max(len(view.attempt.nodes), 1)
    return (
        sighting.hold is gpus.PartCertainty.WHOLE
        and 0 < per_node < _WHOLE_NODE
        and view.state in ("TIMEOUT", "DEADLINE", "CANCELLED")
    )


def _same_bus(sighting: evidence_view.CaseSighting, claim: claims.Claim) -> bool:
    """True when the PCIe event can be the claim's GPU or a port above it."""
    if sighting.gpu is not None:
        return sighting.gpu == claim.gpu
    return sighting.hold is not gpus.PartCertainty.NOT
