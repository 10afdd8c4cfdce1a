"""Driver and firmware: GSP timeouts, PMU halts, context-switch timeouts, version mismatch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings
from probing_cluster.core import records

GSP, DRIVER = "gpu_gsp_timeout", "gpu_driver"


def rule(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    """One claim per GPU and sort of driver failure."""
    yield from claims.collect(case, GSP, "gpu_driver", case.of(GSP))
    yield from claims.collect(case, DRIVER, "gpu_driver", case.of(DRIVER))
    if not any(claims.weigh(s) > 0 for s in case.of(GSP, DRIVER)):
        yield from claims.hints(case, DRIVER, "gpu_driver", findings.FindingRole.HINT)
        yield from claims.hints(case, "gpu_lost", "gpu_driver", findings.FindingRole.HINT)
        yield from _no_gpu(case)


def _no_gpu(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    """The program could use no GPU and no node says why: a job that holds none asked for none, another is unknown."""
    for claim in claims.hints(case, "unknown", "gpu_driver", findings.FindingRole.HINT):
        if case.attempt.n_gpus == 0:
            words = f"found no GPU, and the job holds none: {claim.words}"
            yield dataclasses.replace(
                claim, cause="user_error", weight=0.85, cap=records.Confidence.LIKELY, words=words, node=None
            )
        else:
            yield claim
