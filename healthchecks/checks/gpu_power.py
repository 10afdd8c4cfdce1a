"""GPU power limits are the ones the board was made for."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import gpus, nvml


def judge(node_gpus: tuple[nvml.NvmlGpu, ...], limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        least_w = limits["limit_min_w"] if limits["limit_min_w"] is not None else gpu.power_default_w
        if gpu.power_limit_w is None:
            return gpus.lacks(gpu, "power limit", "power_limit_w")
        if least_w is not None and gpu.power_limit_w < least_w - 0.5:
            text = f"power limited to {gpu.power_limit_w:.0f} W"
            return gpus.bad(findings.warn, gpu, text, measured=gpu.power_limit_w, threshold=least_w, unit="w")
        return gpus.ok(gpu)

    return findings.merge(
        gpus.each(node_gpus, one), healthy=f"power limits of {gpus.count(node_gpus)} as they should be"
    )


CHECK = registry.Check(
    proves="No GPU is held below the power it was made for.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    lane="gpu",
    fails="never",
    warns="the enforced power limit is below limit_min_w (default: the board's own)",
    needs="a GPU with a power limit",
    next_step="nvidia-smi -pl restores it; if it will not go up, look for a missing power cable or a BMC power cap.",
    read=gpus.present,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "limit_min_w",
            None,
            "w",
            "lowest enforced power limit; unset = the board's default",
            "NVML default power limit",
        ),
    ),
)
