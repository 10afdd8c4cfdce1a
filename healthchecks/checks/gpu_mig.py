"""MIG mode is what the site wants, on every GPU."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, gpus, nvml, registry


def judge(seen: tuple[nvml.Gpu, ...], limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.Gpu) -> findings.Finding:
        if gpu.mig is None:
            return gpus.lacks(gpu, "MIG mode", "mig")
        if gpu.mig is not limits["on"]:
            return gpus.bad(findings.fail, gpu, f"MIG mode is {'on' if gpu.mig else 'off'}")
        return gpus.ok(gpu)

    return findings.merge(gpus.each(seen, one), healthy=f"MIG mode of {gpus.count(seen)} as it should be")


CHECK = registry.Check(
    name="gpu_mig",
    proves="No job gets a slice of a GPU that somebody forgot to put together again.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    can_hang=True,
    fails="MIG mode is not as `on` says",
    warns="never",
    needs="a GPU that can do MIG",
    next_step="nvidia-smi -mig 0 (or 1) and a GPU reset when the node is empty; where MIG is meant, say on = true for these nodes.",
    read=gpus.present,
    judge=judge,
    learn=lambda seen: {"on": any(g.mig for g in seen)},
    thresholds=(
        registry.Threshold(
            key="on",
            default=False,
            kind=bool,
            unit="",
            meaning="whether MIG mode should be on",
            source="data-centre GPUs ship with MIG off",
        ),
    ),
)
