"""NVLink and NVSwitch: a link of one GPU, or the switch behind several."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

LINK, SWITCH = "gpu_nvlink", "nvswitch"
SIGHTED = frozenset({LINK, SWITCH})


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for fatal switch errors and for links of single GPUs."""
    per_node = view.gpus_per_node if view.attempt.n_gpus is not None and view.attempt.nodes else None
    yield from claims.collect(view, SWITCH, "gpu_nvlink", view.of(SWITCH), _single_gpu_is_untouched(per_node))
    yield from claims.collect(view, LINK, "gpu_nvlink", view.of(LINK))
    if not any(claims.weigh(s) > 0 for s in view.of(LINK, SWITCH)):
        yield from claims.hints(view, LINK, "gpu_nvlink", findings.FindingRole.HINT)


def _single_gpu_is_untouched(per_node: float | None) -> claims.Adjust:
    def adjust(_: evidence_view.CaseSighting, weight: float) -> float:
        if per_node == 0:
            return 0.0
        return min(weight, 0.6) if per_node == 1 else weight

    return adjust
