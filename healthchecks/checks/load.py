"""The load is one that this many CPUs can carry."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.checks import cpu_count


def read(node: nodeview.NodeView) -> tuple[float, int]:
    """(15-minute load average, CPUs online)."""
    words = (node.text("/proc/loadavg") or "").split()
    if len(words) < 3:
        raise findings.Undetermined("no load average in /proc/loadavg")
    return float(words[2]), cpu_count.read(node).online


def judge(reading: tuple[float, int], limits: registry.Limits) -> findings.Finding:
    load, cpus = reading
    per_cpu = load / cpus
    facts = {"measured": round(per_cpu, 2), "threshold": limits["per_cpu_warn"], "unit": "per_cpu"}
    if per_cpu > limits["per_cpu_warn"]:
        return findings.warn(f"load {load:.1f} on {cpus} CPUs over 15 min", **facts)
    return findings.ok(f"load {load:.1f} on {cpus} CPUs", **facts)


CHECK = registry.Check(
    proves="No runaway processes crowd the CPUs.",
    component="cpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    fails="never: a busy node is what we want",
    warns="the 15-minute load per CPU is above per_cpu_warn",
    needs="/proc/loadavg",
    next_step="Many processes in D state raise the load too: see processes_dstate; else look for oversubscribed jobs.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "per_cpu_warn",
            4.0,
            "per_cpu",
            "load per CPU above which we warn",
            "ours; NHC check_ps_loadavg takes it as an argument",
        ),
    ),
)
