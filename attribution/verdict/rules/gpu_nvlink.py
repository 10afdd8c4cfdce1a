"""NVLink and NVSwitch: a link of one GPU, or the switch behind several."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings

LINK, SWITCH = "gpu_nvlink", "nvswitch"


def rule(case: evidence_view.Scene) -> Iterable[claims.Claim]:
    """A fatal switch error explains the links of the GPUs behind it; one GPU's link explains itself."""
    shared = _gpus_per_node(case)
    yield from claims.collect(case, SWITCH, "gpu_nvlink", case.of(SWITCH), _single_gpu_is_untouched(shared))
    yield from claims.collect(case, LINK, "gpu_nvlink", case.of(LINK))
    if not any(claims.weigh(s) > 0 for s in case.of(LINK, SWITCH)):
        yield from claims.hints(case, LINK, "gpu_nvlink", findings.FindingRole.HINT)


def _gpus_per_node(case: evidence_view.Scene) -> float | None:
    attempt = case.attempt
    return attempt.n_gpus / len(attempt.nodes) if attempt.n_gpus is not None and attempt.nodes else None


def _single_gpu_is_untouched(per_node: float | None) -> claims.Adjust:
    def adjust(_: evidence_view.Sighting, weight: float) -> float:
        if per_node == 0:
            return 0.0
        return min(weight, 0.6) if per_node == 1 else weight

    return adjust
