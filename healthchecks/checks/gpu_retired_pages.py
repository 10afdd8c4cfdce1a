"""Retired memory pages of GPUs that cannot remap rows."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import gpus, nvml


def judge(node_gpus: tuple[nvml.NvmlGpu, ...], limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        single, double = gpu.retired_sbe_total, gpu.retired_dbe_total
        if single is None and double is None:
            return gpus.lacks(gpu, "page retirement", "retired_sbe_total", "retired_dbe_total")
        pages = (single or 0) + (double or 0)
        facts = {"measured": float(pages), "unit": "count"}
        if gpu.retired_pending:
            return gpus.bad(
                findings.fail, gpu, "a page retirement waits for a reboot", threshold=0.0, **facts
            )
        if pages > limits["fail_pages"]:
            return gpus.bad(
                findings.fail,
                gpu,
                f"{pages} memory pages retired",
                threshold=float(limits["fail_pages"]),
                **facts,
            )
        if pages > limits["warn_pages"]:
            return gpus.bad(
                findings.warn,
                gpu,
                f"{pages} memory pages retired",
                threshold=float(limits["warn_pages"]),
                **facts,
            )
        return gpus.ok(gpu)

    return findings.merge(gpus.each(node_gpus, one), healthy=f"few retired pages on {gpus.count(node_gpus)}")


CHECK = registry.Check(
    proves="GPUs before Ampere have memory pages left to retire, and none waits for a reboot.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="a page retirement is pending, or more pages are retired than the vendor replaces at",
    warns="more pages are retired than warn_pages",
    needs="a GPU that retires pages (before Ampere)",
    next_step="Pending: reboot when empty. Too many: replace the GPU (RMA).",
    read=gpus.present,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "warn_pages",
            10,
            "count",
            "retired pages per GPU above which we warn",
            "GCM gpu_retired_pages > 10",
        ),
        registry.Threshold(
            "fail_pages",
            60,
            "count",
            "retired pages per GPU above which it fails",
            "NVIDIA Dynamic Page Retirement: RMA at 60 pages",
        ),
    ),
)
