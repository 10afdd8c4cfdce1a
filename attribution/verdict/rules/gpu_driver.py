"""Driver and firmware: GSP timeouts, PMU halts, context-switch timeouts, version mismatch."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

GSP, DRIVER = "gpu_gsp_timeout", "gpu_driver"


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per GPU and sort of driver failure."""
    yield from claims.collect(view, GSP, "gpu_driver", view.of(GSP))
    yield from claims.collect(view, DRIVER, "gpu_driver", view.of(DRIVER))
    if not any(claims.weigh(s) > 0 for s in view.of(GSP, DRIVER)):
        yield from claims.hints(view, DRIVER, "gpu_driver", findings.FindingRole.HINT)
        yield from claims.hints(view, "gpu_lost", "gpu_driver", findings.FindingRole.HINT)
