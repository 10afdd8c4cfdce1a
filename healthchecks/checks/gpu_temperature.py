"""GPU and HBM temperatures against the GPU's own limits."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, gpus, nvml, registry


def judge(seen: tuple[nvml.Gpu, ...], limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.Gpu) -> findings.Finding:
        if gpu.temperature_c is None:
            return gpus.lacks(gpu, "temperature sensor", "temperature_c")
        fail_c = limits["fail_c"] if limits["fail_c"] is not None else gpu.slowdown_c
        chip = _against(gpu, "GPU", gpu.temperature_c, limits["warn_c"], fail_c, limits["margin_c"])
        hbm_c = limits["memory_fail_c"] if limits["memory_fail_c"] is not None else gpu.memory_max_c
        hbm = _against(gpu, "HBM", gpu.memory_temperature_c, None, hbm_c, limits["memory_margin_c"])
        return max(
            chip, hbm, key=lambda f: (f.outcome is records.Outcome.FAIL, f.outcome is records.Outcome.WARN)
        )

    return findings.merge(gpus.each(seen, one), healthy=f"{gpus.count(seen)} within their limits")


def _against(
    gpu: nvml.Gpu, what: str, now_c: int | None, warn_c: float | None, fail_c: float | None, margin_c: float
) -> findings.Finding:
    if now_c is None or (fail_c is None and warn_c is None):
        return gpus.ok(gpu)
    if fail_c is not None and now_c >= fail_c:
        return gpus.bad(
            findings.fail,
            gpu,
            f"{what} at {now_c} °C",
            measured=float(now_c),
            threshold=float(fail_c),
            unit="c",
        )
    warm_c = warn_c if warn_c is not None else (fail_c or 0.0) - margin_c
    if now_c > warm_c:
        return gpus.bad(
            findings.warn,
            gpu,
            f"{what} at {now_c} °C",
            measured=float(now_c),
            threshold=float(warm_c),
            unit="c",
        )
    return gpus.ok(gpu)


CHECK = registry.Check(
    name="gpu_temperature",
    proves="No GPU and no HBM stack is at the temperature at which it slows itself down.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    can_hang=True,
    fails="a GPU at its slowdown temperature (or fail_c), or HBM at its maximum (or memory_fail_c)",
    warns="within the margin below",
    needs="a GPU with a temperature sensor",
    next_step="Check airflow, fans, coolant and the neighbours in the rack before blaming the GPU.",
    read=gpus.present,
    judge=judge,
    thresholds=(
        registry.Threshold(
            key="warn_c",
            default=None,
            unit="c",
            meaning="GPU temperature above which we warn; unset = margin_c below the limit",
            source="GCM leaves it to the site",
        ),
        registry.Threshold(
            key="fail_c",
            default=None,
            unit="c",
            meaning="GPU temperature that fails; unset = the GPU's own slowdown temperature",
            source="NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",
        ),
        registry.Threshold(
            key="margin_c",
            default=3.0,
            unit="c",
            meaning="distance from the limit at which we warn",
            source="ours",
        ),
        registry.Threshold(
            key="memory_fail_c",
            default=None,
            unit="c",
            meaning="HBM temperature that fails; unset = the GPU's own maximum",
            source="NVML_TEMPERATURE_THRESHOLD_MEM_MAX",
        ),
        registry.Threshold(
            key="memory_margin_c",
            default=3.0,
            unit="c",
            meaning="distance from the HBM limit at which we warn",
            source="ours",
        ),
    ),
)
