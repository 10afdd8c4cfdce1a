"""MIG mode is what the site wants, on every GPU."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import gpus, nvml


def judge(node_gpus: tuple[nvml.NvmlGpu, ...], limits: registry.Limits) -> findings.Finding:
    modes = [g.mig for g in node_gpus if g.mig is not None]
    usual = max(set(modes), key=modes.count) if modes else None

    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if gpu.mig is None:
            return gpus.lacks(gpu, "MIG mode", "mig")
        wanted = usual if limits["on"] is None else limits["on"]
        if gpu.mig is not wanted:
            make = findings.warn if limits["on"] is None else findings.fail
            others = ", unlike the others" if limits["on"] is None else ""
            return gpus.bad(make, gpu, f"MIG mode is {'on' if gpu.mig else 'off'}{others}")
        return gpus.ok(gpu)

    return findings.merge(
        gpus.each(node_gpus, one), healthy=f"MIG mode of {gpus.count(node_gpus)} as it should be"
    )


CHECK = registry.Check(
    proves="No job gets a slice of a GPU that somebody forgot to put together again.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="MIG mode is not as the site file says",
    warns="without a word of the site file: one GPU differs from the others",
    needs="a GPU that can do MIG",
    next_step="nvidia-smi -mig 0 (or 1) and a GPU reset when the node is empty; where MIG is meant, say on = true for these nodes.",
    read=gpus.present,
    judge=judge,
    learn=lambda node_gpus: {"on": any(g.mig for g in node_gpus)},
    thresholds=(
        registry.Threshold(
            "on",
            None,
            "",
            "whether MIG mode should be on; unset = the same on all GPUs",
            "site (genconf)",
            unset=bool,
        ),
    ),
)
