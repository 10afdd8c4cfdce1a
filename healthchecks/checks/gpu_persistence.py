"""Persistence mode is on, so that the driver is not loaded anew for every job."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import gpus, nvml


def judge(node_gpus: tuple[nvml.NvmlGpu, ...], limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if gpu.persistence is None:
            return gpus.lacks(gpu, "persistence mode", "persistence")
        if gpu.persistence is not limits["on"]:
            return gpus.bad(findings.warn, gpu, f"persistence mode is {'on' if gpu.persistence else 'off'}")
        return gpus.ok(gpu)

    return findings.merge(
        gpus.each(node_gpus, one), healthy=f"persistence mode of {gpus.count(node_gpus)} as it should be"
    )


CHECK = registry.Check(
    proves="Persistence mode is on: jobs start faster and ECC counters survive between them.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    lane="gpu",
    fails="never",
    warns="persistence mode is not as `on` says",
    needs="a GPU with persistence mode",
    next_step="Enable nvidia-persistenced (or nvidia-smi -pm 1).",
    read=gpus.present,
    judge=judge,
    thresholds=(
        registry.Threshold("on", True, "", "whether it should be on", "NVIDIA driver persistence guide"),
    ),
)
