"""GPU memory errors: uncorrected ones fail the node, a flood of corrected ones is shown."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs, and the uncorrected counts at which a person last declared them healthy, by UUID."""

    gpus: tuple[nvml.NvmlGpu, ...]
    cleared: dict[str, int]


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    node.memory["last"] = {
        g.uuid: g.ecc_uncorrected_volatile_total for g in node_gpus if g.uuid and not g.lost
    }
    cleared = {k: v for k, v in node.memory.get("cleared", {}).items() if isinstance(v, int)}
    return Reading(gpus=node_gpus, cleared=cleared)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = gpus.each(reading.gpus, lambda gpu: _one(gpu, reading.cleared.get(gpu.uuid or "", 0), limits))
    return findings.merge(parts, healthy=f"no uncorrected error on {gpus.count(reading.gpus)}")


def _one(gpu: nvml.NvmlGpu, base: int, limits: registry.Limits) -> findings.Finding:
    uncorrected, corrected = gpu.ecc_uncorrected_volatile_total, gpu.ecc_corrected_volatile_total
    if gpu.ecc_enabled is False:
        return gpus.bad(
            findings.warn if limits["require_enabled"] else findings.absent, gpu, "ECC is switched off"
        )
    if uncorrected is None:
        return gpus.lacks(gpu, "ECC counters", "ecc_uncorrected_volatile_total", "ecc_enabled")
    fresh = uncorrected - base if uncorrected >= base else uncorrected  # below: the driver was reloaded
    if fresh > limits["uncorrected_max"]:
        errors = findings.plural(fresh, "uncorrected memory error")
        text = f"{errors}{_place(gpu)} since the driver was loaded"
        return gpus.bad(
            findings.fail, gpu, text, **findings.amount(fresh, limits["uncorrected_max"], "count")
        )
    if corrected is not None and corrected > limits["corrected_warn"]:
        text = f"{corrected} corrected memory errors since the driver was loaded"
        return gpus.bad(
            findings.warn, gpu, text, **findings.amount(corrected, limits["corrected_warn"], "count")
        )
    return gpus.ok(gpu)


def _place(gpu: nvml.NvmlGpu) -> str:
    counts = {
        "SRAM": gpu.ecc_sram_uncorrected_volatile_total,
        "DRAM": gpu.ecc_dram_uncorrected_volatile_total,
    }
    named = [f"{n} {kind}" for kind, n in counts.items() if n]
    return f" ({', '.join(named)})" if named else ""


CHECK = registry.Check(
    proves="No GPU has had a memory error that its hardware could not correct.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="gpu",
    hard=True,
    fails="a GPU counts uncorrected (volatile) ECC errors since the driver was loaded or a person cleared the check",
    warns="very many corrected errors, or ECC switched off",
    needs="a GPU with ECC",
    next_step="Drain, then reset the GPU (nvidia-smi --gpu-reset) or reboot; look at gpu_row_remap; "
    "replace the GPU if rows cannot be remapped or it happens again.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "uncorrected_max",
            0,
            "count",
            "uncorrected volatile errors accepted per GPU",
            "GCM ecc_uncorrected_volatile_total > 0; arXiv 2410.21680 (high severity)",
        ),
        registry.Threshold(
            "corrected_warn",
            50_000_000,
            "count",
            "corrected volatile errors per GPU above which we warn",
            "GCM ecc_corrected_volatile_total 50 000 000 (AzNHC: 20 000 000)",
        ),
        registry.Threshold(
            "require_enabled",
            True,
            "",
            "whether ECC switched off is a warning",
            "NVIDIA data-centre GPUs ship with ECC on",
        ),
    ),
)
