"""GPU clocks: nobody left them lowered, and a busy GPU reaches them."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import gpus, nvml


def judge(node_gpus: tuple[nvml.NvmlGpu, ...], limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if gpu.sm_clock_max_mhz is None:
            return gpus.lacks(gpu, "clocks", "sm_clock_max_mhz")
        set_mhz, usual_mhz = gpu.application_sm_mhz, gpu.application_sm_default_mhz
        if set_mhz is not None and usual_mhz is not None and set_mhz < usual_mhz:
            text = f"application clock left at {set_mhz} MHz"
            return gpus.bad(findings.warn, gpu, text, **findings.amount(set_mhz, usual_mhz, "mhz"))
        return _busy(gpu, limits)

    return findings.merge(
        gpus.each(node_gpus, one), healthy=f"clocks of {gpus.count(node_gpus)} as they should be"
    )


def _busy(gpu: nvml.NvmlGpu, limits: registry.Limits) -> findings.Finding:
    # An idle GPU lowers its clocks by itself: judging it is how healthy nodes are taken.
    if gpu.utilization_frac is None or gpu.utilization_frac < limits["busy_frac"]:
        return gpus.ok(gpu)
    for what, now, least in (
        ("SM", gpu.sm_clock_mhz, limits["sm_min_mhz"]),
        ("memory", gpu.memory_clock_mhz, limits["memory_min_mhz"] or gpu.memory_clock_max_mhz),
    ):
        if now is not None and least is not None and now < least:
            text = f"busy with its {what} clock at {now} MHz"
            return gpus.bad(findings.warn, gpu, text, **findings.amount(now, least, "mhz"))
    return gpus.ok(gpu)


CHECK = registry.Check(
    proves="No GPU runs slower than its neighbours because of a forgotten setting or a low clock under load.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    lane="gpu",
    fails="never",
    warns="application clocks below their default, or a busy GPU below sm_min_mhz or its memory clock",
    needs="a GPU that tells its clocks",
    next_step="nvidia-smi -rac and -rgc reset clocks; if a busy GPU stays slow, look at gpu_throttle and gpu_power.",
    read=gpus.present,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "sm_min_mhz",
            None,
            "mhz",
            "lowest SM clock of a busy GPU; unset = not judged",
            "GCM clock_freq: 1155 (A100)",
            unset=int,
        ),
        registry.Threshold(
            "memory_min_mhz",
            None,
            "mhz",
            "lowest memory clock of a busy GPU; unset = its maximum",
            "GCM clock_freq: 1593 (A100)",
            unset=int,
        ),
        registry.Threshold("busy_frac", 0.5, "frac", "utilisation from which a GPU counts as busy", "ours"),
    ),
)
