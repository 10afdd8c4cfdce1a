"""The NVSwitch fabric: switches there, fabric manager running, every GPU registered."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml, pci, procs

NOT_STARTED, IN_PROGRESS, COMPLETED = 1, 2, 3
_DEGRADED_BANDWIDTH, _ROUTE_UNHEALTHY = (0, "runs with degraded bandwidth"), (4, "has an unhealthy route")
MANAGER = "nv-fabricmanager"[:15]
"""The kernel keeps 15 characters of a process name."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs, the NVSwitches on the bus, and whether the fabric manager runs (None: not known)."""

    gpus: tuple[nvml.NvmlGpu, ...]
    switches: int
    manager: bool | None
    young: bool = False
    """Just booted: GPUs register one after the other, which takes minutes."""


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    try:
        switches = sum(f.is_nvswitch for f in pci.functions(node))
    except findings.Absent:
        switches = 0
    if not switches and not any(g.fabric_state for g in node_gpus) and not node.limits["switches"]:
        raise findings.Absent("no NVSwitch fabric on this node")
    try:
        manager = any(p.name.startswith(MANAGER) for p in procs.listing(node))
    except findings.Absent:
        manager = None
    up_s = node.uptime_s
    young = up_s is not None and up_s < node.limits["boot_grace_s"]
    return Reading(gpus=node_gpus, switches=switches, manager=manager, young=young)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts: list[findings.Finding] = []
    if reading.switches and reading.manager is False:
        text = "nvidia-fabricmanager does not run: CUDA cannot start on these GPUs"
        parts.append(findings.fail(text, device="fabricmanager"))
    parts += findings.too_few(reading.switches, limits["switches"], "NVSwitches on the bus")
    parts += gpus.each(reading.gpus, lambda gpu: _gpu(gpu, young=reading.young))
    switches = f", NVSwitches: {reading.switches}" if reading.switches else ""
    return findings.merge(parts, healthy=f"{gpus.count(reading.gpus)} registered{switches}")


def _gpu(gpu: nvml.NvmlGpu, *, young: bool) -> findings.Finding:
    if gpu.fabric_state in (NOT_STARTED, IN_PROGRESS):
        word = "has not started" if gpu.fabric_state == NOT_STARTED else "is still in progress"
        make = findings.warn if young and gpu.fabric_state == IN_PROGRESS else findings.fail
        return gpus.bad(make, gpu, f"its registration with the fabric {word}")
    if gpu.fabric_state == COMPLETED and gpu.fabric_status not in (0, None):
        return gpus.bad(
            findings.fail, gpu, f"its registration with the fabric failed (NVML code {gpu.fabric_status})"
        )
    for shift, text in (_DEGRADED_BANDWIDTH, _ROUTE_UNHEALTHY):
        if gpu.fabric_health_mask is not None and (gpu.fabric_health_mask >> shift) & 0x3 == 1:
            return gpus.bad(findings.warn, gpu, f"the fabric {text}")
    return gpus.ok(gpu)


CHECK = registry.Check(
    proves="All NVSwitches are there, the fabric manager runs, and every GPU is registered with a healthy fabric.",
    component="nvlink",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="an NVSwitch is missing, the fabric manager does not run, or a GPU is not registered",
    warns="the fabric says degraded bandwidth or an unhealthy route, or a GPU still registers within boot_grace_s",
    needs="NVSwitches on the PCI bus, or GPUs that register with a fabric",
    next_step="systemctl status nvidia-fabricmanager and its log; its version must equal the driver's.",
    read=read,
    judge=judge,
    learn=lambda reading: {"switches": reading.switches or None},
    thresholds=(
        registry.Threshold(
            "switches",
            None,
            "count",
            "NVSwitches on the PCI bus; unset = not counted",
            "site (genconf) or SKU preset",
            unset=int,
        ),
        registry.Threshold(
            "boot_grace_s", 600.0, "s", "time after boot in which a registration may be in progress", "ours"
        ),
    ),
)
