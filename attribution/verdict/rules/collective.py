"""Collectives that never finished: which rank was missing; without any other evidence an honest unknown."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

SIGHTED: frozenset[str] = frozenset()


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """A missing rank points at its host's program; a bare timeout points nowhere."""
    yield from claims.hints(view, "missing_rank", "collective", findings.FindingRole.HINT)
    yield from claims.hints(view, "unknown", "collective", findings.FindingRole.PROXIMAL)
