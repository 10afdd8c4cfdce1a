"""GPUs do not keep repeating PCIe packets."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs and how their replay counters grew, by device."""

    gpus: tuple[nvml.NvmlGpu, ...]
    grown: counters.Growth


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    return Reading(
        gpus=node_gpus,
        grown=counters.growth(node, {g.device: g.pcie_replays_total for g in node_gpus if not g.lost}),
    )


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if gpu.pcie_replays_total is None:
            return gpus.lacks(gpu, "PCIe replay counter", "pcie_replays_total")
        rate, most = reading.grown.per_hour(gpu.device), limits["per_hour_warn"]
        if rate > most:
            when = "since boot" if reading.grown.first else "since the last look"
            text = f"{reading.grown.by_key[gpu.device]} PCIe replays {when}"
            return gpus.bad(
                findings.warn, gpu, text, measured=round(rate, 1), threshold=most, unit="per_hour"
            )
        return gpus.ok(gpu)

    return findings.merge(
        gpus.each(reading.gpus, one), healthy=f"few PCIe replays on {gpus.count(reading.gpus)}"
    )


CHECK = registry.Check(
    proves="The PCIe link of every GPU carries packets at the first try.",
    component="pcie",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="never",
    warns="replays grow faster than per_hour_warn",
    needs="a GPU that counts PCIe replays",
    next_step="Reseat the GPU or its riser; compare pcie_aer of the port above it.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "per_hour_warn",
            480.0,
            "per_hour",
            "replays per GPU and hour above which we warn",
            "DCGM health watch: 8 replays per minute",
        ),
    ),
)
