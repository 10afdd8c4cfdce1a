"""Uncorrectable GPU memory errors: contained, uncontained, or without a spare row for the repair."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

UNCORRECTABLE, CONTAINED, NO_SPARE = (
    "gpu_memory_uncorrectable",
    "gpu_memory_contained",
    "gpu_row_remap_failure",
)
SIGHTED = frozenset({UNCORRECTABLE, CONTAINED, NO_SPARE})
_NOT_CONTAINED = frozenset({"95", "140"})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per GPU: contained (Xid 94) unless Xid 95 or 140 says otherwise; a failed remap weighs most."""
    uncontained = {
        (s.event.node, s.gpu)
        for s in view.of(UNCORRECTABLE)
        if s.event.kind == "xid"
        and s.event.code in _NOT_CONTAINED
        and s.when is evidence_view.EventPhase.RUNNING
    }
    contained = [s for s in view.of(CONTAINED) if (s.event.node, s.gpu) not in uncontained]
    escaped = [s for s in view.of(CONTAINED) if (s.event.node, s.gpu) in uncontained]
    yield from claims.collect(view, NO_SPARE, "gpu_memory", view.of(NO_SPARE), _after_error(view))
    yield from claims.collect(view, CONTAINED, "gpu_memory", contained)
    yield from claims.collect(view, UNCORRECTABLE, "gpu_memory", [*view.of(UNCORRECTABLE), *escaped])
    yield from _reported_by_cuda(view)


def _after_error(view: evidence_view.EvidenceView) -> claims.Adjust:
    """Makes a failed remap certain if the memory error that it was to repair was seen on the same GPU."""
    errors = {(s.event.node, s.gpu) for s in view.of(UNCORRECTABLE, CONTAINED) if claims.weigh(s) >= 0.9}

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        return (
            max(weight, 0.97) if weight >= 0.9 and (sighting.event.node, sighting.gpu) in errors else weight
        )

    return adjust


def _reported_by_cuda(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """CUDA's own report, if no node event shows the error: likely at best."""
    if any(claims.weigh(s) > 0 for s in view.of(UNCORRECTABLE, CONTAINED, NO_SPARE)):
        return
    yield from claims.hints(view, UNCORRECTABLE, "gpu_memory", findings.FindingRole.HINT)
