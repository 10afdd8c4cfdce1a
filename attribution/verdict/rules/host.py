"""The host itself: main memory, processor, power and cooling, system services."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

SERVICES = "system_services"
CAUSES = ("main_memory", "cpu_mce", "thermal_power", "kernel_panic", SERVICES)
SIGHTED = frozenset(CAUSES)


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per part; a machine check that is a memory error is claimed by the memory's own rows."""
    for cause in CAUSES:
        yield from claims.collect(view, cause, "host", view.of(cause))
    if not any(claims.weigh(s) > 0 for s in view.of(SERVICES)):
        yield from claims.hints(view, SERVICES, "host", findings.FindingRole.HINT)
