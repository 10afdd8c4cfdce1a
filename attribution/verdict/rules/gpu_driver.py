"""Driver and firmware: GSP timeouts, PMU halts, context-switch timeouts, version mismatch."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings
from probing_cluster.core import records

GSP, DRIVER = "gpu_gsp_timeout", "gpu_driver"
SIGHTED = frozenset({GSP, DRIVER})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """One claim per GPU and kind of driver failure."""
    yield from claims.collect(view, GSP, "gpu_driver", view.of(GSP))
    yield from claims.collect(view, DRIVER, "gpu_driver", view.of(DRIVER))
    if not any(claims.weigh(s) > 0 for s in view.of(GSP, DRIVER)):
        yield from claims.hints(view, DRIVER, "gpu_driver", findings.FindingRole.HINT)
        yield from claims.hints(view, "gpu_lost", "gpu_driver", findings.FindingRole.HINT)
        yield from _no_gpu(view)


def _no_gpu(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """The program found no GPU, and no node reports why. A job without GPUs made an error; any other stays unknown."""
    for claim in claims.hints(view, "unknown", "gpu_driver", findings.FindingRole.HINT):
        if view.attempt.n_gpus == 0:
            words = f"found no GPU, and the job holds none: {claim.words}"
            yield claims.replace_claim(
                claim, cause="user_error", weight=0.85, cap=records.Confidence.LIKELY, words=words, node=None
            )
        else:
            yield claim
