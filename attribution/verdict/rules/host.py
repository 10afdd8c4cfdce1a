"""The host itself: main memory, processor, power and cooling, system services."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

SERVICES = "system_services"
CAUSES = ("main_memory", "cpu_mce", "thermal_power", "kernel_panic", SERVICES)


def rule(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    """One claim per part; a machine check that is a memory error is told by the memory's own rows."""
    for cause in CAUSES:
        yield from claims.collect(case, cause, "host", case.of(cause))
    if not any(claims.weigh(s) > 0 for s in case.of(SERVICES)):
        yield from claims.hints(case, SERVICES, "host", findings.FindingRole.HINT)
