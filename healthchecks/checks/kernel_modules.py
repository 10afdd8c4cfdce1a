"""Kernel modules that jobs need are loaded."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry


def read(node: nodeview.NodeView) -> tuple[frozenset[str], list[str]]:
    """(loaded modules, modules that must be loaded here)."""
    text = node.text("/proc/modules")
    if text is None:
        raise findings.Absent("this kernel has no modules")
    loaded = frozenset(line.split(" ", 1)[0] for line in text.splitlines())
    wanted = list(node.limits["expected"])
    # GPUDirect RDMA needs this one on every node that has both kinds of device.
    if node.limits["peermem"] and "nvidia" in loaded and node.names("/sys/class/infiniband"):
        wanted.append("nvidia_peermem")
    if not wanted:
        raise findings.Absent("no module is asked for")
    return loaded, wanted


def judge(reading: tuple[frozenset[str], list[str]], limits: registry.Limits) -> findings.Finding:
    loaded, wanted = reading
    parts = [
        findings.ok(name)
        if name in loaded
        else findings.warn(f"module {name} is not loaded", device=name)
        if name not in limits["expected"]
        else findings.fail(f"module {name} is not loaded", device=name)
        for name in wanted
    ]
    return findings.merge(parts, healthy=f"{findings.plural(len(wanted), 'module')} loaded")


CHECK = registry.Check(
    proves="The kernel modules that jobs need are loaded, GPUDirect RDMA's among them.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="a module of the site file is not loaded",
    warns="nvidia_peermem is not loaded on a node with GPUs and HCAs",
    needs="modules in the site file, or a node with both GPUs and HCAs",
    next_step="modprobe it, and have it loaded at boot (/etc/modules-load.d).",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "expected", [], "", "modules that must be loaded, as lsmod names them", "site; GCM check-module"
        ),
        registry.Threshold(
            "peermem",
            True,
            "",
            "whether nvidia_peermem is wanted where GPUs and HCAs are (switch off where DMA-BUF is used)",
            "NVIDIA GPUDirect RDMA guide",
        ),
    ),
)
