"""GPUs slowed down by heat or by the power supply."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml

HARDWARE = {0x08: "hardware slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
SOFTWARE = {0x20: "software thermal slowdown"}
"""NVML clocks event reasons. The power cap (0x04) is normal under load, idle and application clocks are no slowdown."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs, and for how long each has been slowed without a pause, by device."""

    gpus: tuple[nvml.NvmlGpu, ...]
    lasting_s: dict[str, float]


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    now_s = counters.since_boot_s(node)
    before = node.memory.get("since_s", {})
    slowed = [g.device for g in node_gpus if words(g.throttle_reasons, HARDWARE)]
    node.memory["since_s"] = {d: before.get(d, now_s) for d in slowed}
    return Reading(gpus=node_gpus, lasting_s={d: now_s - s for d, s in node.memory["since_s"].items()})


def words(mask: int | None, names: dict[int, str]) -> list[str]:
    """The reasons set in a mask, in words."""
    return [name for bit, name in names.items() if mask is not None and mask & bit]


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if gpu.throttle_reasons is None:
            return gpus.lacks(gpu, "throttle reasons", "throttle_reasons")
        hard, soft = words(gpu.throttle_reasons, HARDWARE), words(gpu.throttle_reasons, SOFTWARE)
        lasted_s = reading.lasting_s.get(gpu.device, 0.0)
        if hard and lasted_s >= limits["lasting_fail_s"]:
            text = f"{', '.join(hard)} for {lasted_s / 60:.0f} min"
            facts = {"measured": round(lasted_s), "threshold": limits["lasting_fail_s"], "unit": "s"}
            return gpus.bad(findings.fail, gpu, text, **facts)
        if hard or soft:
            return gpus.bad(findings.warn, gpu, f"{', '.join(hard + soft)} now")
        return gpus.ok(gpu)

    return findings.merge(gpus.each(reading.gpus, one), healthy=f"no slowdown on {gpus.count(reading.gpus)}")


CHECK = registry.Check(
    proves="No GPU is slowed down by heat or by a failing power supply.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="a hardware slowdown, hardware thermal slowdown or power brake at every look for lasting_fail_s",
    warns="any of these, or a software thermal slowdown, at this moment",
    needs="a GPU that tells its clocks event reasons",
    next_step="Compare inlet and GPU temperatures with its neighbours; check fans, heat sinks and both power supplies.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "lasting_fail_s",
            600.0,
            "s",
            "how long a hardware slowdown must last to fail",
            "gpud: hw slowdown over 10 min",
        ),
    ),
)
