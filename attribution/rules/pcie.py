"""PCIe: uncorrected errors, links down. One lost GPU is that GPU's fault; several devices are the bus's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from probing_cluster.attribution import claims, scene

CAUSE = "pcie"
_SHARED = ("gpu_lost", "ib_link", "disk")


def rule(case: scene.Scene) -> Iterable[claims.Claim]:
    """A bus error with two or more devices gone on one node is a shared part above them."""
    gone: dict[str, set[str]] = {}
    for s in case.of(*_SHARED):
        if claims.weigh(s) > 0:
            gone.setdefault(s.event.node, set()).add(s.gpu or s.device or "")
    for claim in claims.collect(case, CAUSE, "pcie", case.of(CAUSE)):
        lost = gone.get(claim.node or "", set())
        if len(lost) < 2 or claim.weight < claims.POSSIBLE:
            yield claim
            continue
        others = tuple(s.event for s in case.of(*_SHARED) if s.event.node == claim.node)
        yield dataclasses.replace(
            claim,
            weight=max(claim.weight, 0.9),
            evidence=claim.evidence + others,
            device=claim.device,
            words=f"lost {len(lost)} devices at once behind one PCIe part",
            explains=frozenset(_SHARED),
        )
