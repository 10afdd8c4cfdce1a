"""Driver and firmware: GSP timeouts, PMU halts, context-switch timeouts, version mismatch."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

GSP, DRIVER = "gpu_gsp_timeout", "gpu_driver"


def rule(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    """One claim per GPU and sort of driver failure."""
    yield from claims.collect(case, GSP, "gpu_driver", case.of(GSP))
    yield from claims.collect(case, DRIVER, "gpu_driver", case.of(DRIVER))
    if not any(claims.weigh(s) > 0 for s in case.of(GSP, DRIVER)):
        yield from claims.hints(case, DRIVER, "gpu_driver", findings.FindingRole.HINT)
        yield from claims.hints(case, "gpu_lost", "gpu_driver", findings.FindingRole.HINT)
