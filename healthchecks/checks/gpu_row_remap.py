"""Row remapping: a bank out of spare rows is a dead GPU; a pending remap needs a reset."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import gpus, nvml


def judge(node_gpus: tuple[nvml.NvmlGpu, ...], limits: registry.Limits) -> findings.Finding:
    parts = gpus.each(node_gpus, lambda gpu: _one(gpu, limits["uncorrected_warn"]))
    return findings.merge(parts, healthy=f"no failed or pending remap on {gpus.count(node_gpus)}")


def _one(gpu: nvml.NvmlGpu, most: int) -> findings.Finding:
    if gpu.remap_failed is None:
        return gpus.lacks(gpu, "row remapping", "remapped_rows")
    one = findings.amount(1, 0, "count")
    if gpu.remap_failed:
        return gpus.bad(findings.fail, gpu, "a row could not be remapped: its memory is worn out", **one)
    if gpu.remap_pending:
        return gpus.bad(
            findings.fail, gpu, "a row remap waits for a GPU reset", severity=records.Severity.LOW, **one
        )
    uncorrected, exhausted = gpu.remapped_uncorrected_total, gpu.remap_banks_exhausted
    if uncorrected is not None and uncorrected > most:
        text = f"{uncorrected} rows remapped for uncorrected errors"
        return gpus.bad(findings.warn, gpu, text, **findings.amount(uncorrected, most, "count"))
    if exhausted:
        text = f"{exhausted} memory bank{'s have' if exhausted > 1 else ' has'} no spare row left"
        return gpus.bad(findings.warn, gpu, text, **findings.amount(exhausted, 0, "count"))
    return gpus.ok(gpu)


CHECK = registry.Check(
    proves="Every faulty memory row of every GPU has been replaced by a spare one.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="gpu",
    hard=True,
    fails="a remap failed (high), or one waits for a GPU reset (low)",
    warns="many rows remapped for uncorrected errors, or a bank without spare rows",
    needs="a GPU that remaps rows (Ampere and later)",
    next_step="Pending: reset the GPU or reboot when the node is empty. Failed: replace the GPU (RMA).",
    read=gpus.present,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "uncorrected_warn",
            512,
            "count",
            "rows remapped for uncorrected errors above which we warn",
            "AzNHC's rule of 512 (never firing there: it indexes past its query)",
        ),
    ),
)
