"""The CPU frequency governor is the one for computing."""

from __future__ import annotations

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import findings, nodeview, registry

BASE = "/sys/devices/system/cpu"


def read(node: nodeview.NodeView) -> dict[str, str]:
    """Governor by policy; on kernels without the policy directory, by CPU."""
    found = {
        p: g
        for p in node.names(f"{BASE}/cpufreq")
        if (g := node.text(f"{BASE}/cpufreq/{p}/scaling_governor"))
    }
    if not found:
        cpus = (n for n in node.names(BASE) if n.startswith("cpu") and digits.is_number(n[3:]))
        found = {c: g for c in cpus if (g := node.text(f"{BASE}/{c}/cpufreq/scaling_governor"))}
    if not found:
        raise findings.Absent("no CPU frequency governor (fixed frequency, or a virtual machine)")
    return found


def judge(governors: dict[str, str], limits: registry.Limits) -> findings.Finding:
    wanted = limits["governor"]
    parts = [
        findings.warn(f"{name} uses governor {governor}, not {wanted}", device=name)
        if governor != wanted
        else findings.ok(name)
        for name, governor in governors.items()
    ]
    return findings.merge(parts, healthy=f"governor {wanted} everywhere")


CHECK = registry.Check(
    proves="CPUs run under the governor the site wants.",
    component="cpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    period_s=900.0,
    fails="never",
    warns="a CPU has another governor",
    needs="a cpufreq governor in sysfs",
    next_step="cpupower frequency-set -g performance, or tuned-adm profile hpc-compute.",
    read=read,
    judge=judge,
    learn=lambda governors: {"governor": max(set(governors.values()), key=list(governors.values()).count)},
    thresholds=(
        registry.Threshold(
            "governor", "performance", "", "governor every CPU should have", "GCM cpufreq-governor"
        ),
    ),
)
