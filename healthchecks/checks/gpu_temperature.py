"""GPU and HBM temperatures against the GPU's own limits."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml, procs


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs, and for how long each sensor has been seen at its limit, by `gpu0 HBM`."""

    gpus: tuple[nvml.NvmlGpu, ...]
    hot_s: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """One temperature and its limits: the site's before the GPU's own."""

    what: str
    now_c: int | None
    warn_c: float | None
    fail_c: float | None
    margin_c: float

    @property
    def hot(self) -> bool:
        return self.now_c is not None and self.fail_c is not None and self.now_c >= self.fail_c


def sensors(gpu: nvml.NvmlGpu, limits: registry.Limits) -> tuple[Sensor, Sensor]:
    """The GPU's two sensors."""
    # Some boards answer 0 for a limit they do not have.
    chip_c = limits["fail_c"] if limits["fail_c"] is not None else gpu.slowdown_c or None
    hbm_c = limits["memory_fail_c"] if limits["memory_fail_c"] is not None else gpu.memory_max_c or None
    chip = Sensor(
        what="GPU",
        now_c=gpu.temperature_c,
        warn_c=limits["warn_c"],
        fail_c=chip_c,
        margin_c=limits["margin_c"],
    )
    hbm = Sensor(
        what="HBM",
        now_c=gpu.memory_temperature_c,
        warn_c=None,
        fail_c=hbm_c,
        margin_c=limits["memory_margin_c"],
    )
    return chip, hbm


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    hot = [f"{g.device} {s.what}" for g in node_gpus for s in sensors(g, node.limits) if s.hot]
    return Reading(gpus=node_gpus, hot_s=procs.lasting(node, hot))


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if gpu.temperature_c is None:
            return gpus.lacks(gpu, "temperature sensor", "temperature_c")
        chip, hbm = (_against(gpu, s, reading.hot_s, limits["lasting_fail_s"]) for s in sensors(gpu, limits))
        return max(
            chip, hbm, key=lambda f: (f.outcome is records.Outcome.FAIL, f.outcome is records.Outcome.WARN)
        )

    return findings.merge(
        gpus.each(reading.gpus, one), healthy=f"{gpus.count(reading.gpus)} within their limits"
    )


def _against(
    gpu: nvml.NvmlGpu, sensor: Sensor, hot_s: dict[str, float], lasting_s: float
) -> findings.Finding:
    if sensor.now_c is None or (sensor.fail_c is None and sensor.warn_c is None):
        return gpus.ok(gpu)
    text, facts = f"{sensor.what} at {sensor.now_c} °C", {"measured": float(sensor.now_c), "unit": "c"}
    if sensor.hot:
        lasted_s = hot_s.get(f"{gpu.device} {sensor.what}", 0.0)
        make = findings.fail if lasted_s >= lasting_s else findings.warn
        since = f" for {lasted_s / 60:.0f} min" if lasted_s else ""
        return gpus.bad(make, gpu, text + since, threshold=sensor.fail_c, **facts)
    warm_c = sensor.warn_c if sensor.warn_c is not None else (sensor.fail_c or 0.0) - sensor.margin_c
    if sensor.now_c > warm_c:
        return gpus.bad(findings.warn, gpu, text, threshold=warm_c, **facts)
    return gpus.ok(gpu)


CHECK = registry.Check(
    proves="No GPU and no HBM stack is at the temperature at which it slows itself down.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="a GPU at its slowdown temperature (or fail_c), or HBM at its maximum (or memory_fail_c), at every look for "
    "lasting_fail_s",
    warns="the same at this moment, or within the margin below",
    needs="a GPU with a temperature sensor",
    next_step="Check airflow, fans, coolant and the neighbours in the rack before blaming the GPU.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "warn_c",
            None,
            "c",
            "GPU temperature above which we warn; unset = margin_c below the limit",
            "GCM leaves it to the site",
        ),
        registry.Threshold(
            "fail_c",
            None,
            "c",
            "GPU temperature that fails; unset = the GPU's own slowdown temperature",
            "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",
        ),
        registry.Threshold("margin_c", 3.0, "c", "distance from the limit at which we warn", "ours"),
        registry.Threshold(
            "lasting_fail_s", 240.0, "s", "how long it must be that hot to fail", "ours: two sweeps in a row"
        ),
        registry.Threshold(
            "memory_fail_c",
            None,
            "c",
            "HBM temperature that fails; unset = the GPU's own maximum",
            "NVML_TEMPERATURE_THRESHOLD_MEM_MAX",
        ),
        registry.Threshold(
            "memory_margin_c", 3.0, "c", "distance from the HBM limit at which we warn", "ours"
        ),
    ),
)
