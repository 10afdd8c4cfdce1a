"""The kernel keeps time by the CPU's own counter."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

BASE = "/sys/devices/system/clocksource/clocksource0"


def read(node: nodeview.NodeView) -> str:
    """The clock source in use."""
    current = node.text(f"{BASE}/current_clocksource")
    if not current:
        raise findings.Absent("the kernel does not tell its clock source")
    return current.strip()


def judge(source: str, limits: registry.Limits) -> findings.Finding:
    if source not in limits["expected"]:
        return findings.warn(f"clock source {source}: every gettimeofday is a slow system call")
    return findings.ok(f"clock source {source}")


CHECK = registry.Check(
    proves="Reading the time is cheap on this node.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    period_s=900.0,
    fails="never",
    warns="the clock source is none of `expected`: the kernel found the TSC unstable and fell back",
    needs="a clock source in sysfs",
    next_step="Look for `Marking clocksource 'tsc' as unstable` in the kernel log: firmware or a failing board.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "expected",
            ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"],
            "",
            "clock sources accepted",
            "GCM check-clocksource takes one; these are the fast ones of bare metal, KVM, Hyper-V and ARM",
        ),
    ),
)
