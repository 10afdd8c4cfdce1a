"""A node that has just booted, or never does, is worth knowing."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry


def read(node: nodeview.NodeView) -> float:
    """Seconds since boot."""
    if node.uptime_s is None:
        raise findings.Undetermined("no /proc/uptime")
    return node.uptime_s


def judge(uptime_s: float, limits: registry.Limits) -> findings.Finding:
    days = uptime_s / 86400
    if uptime_s < limits["young_warn_s"]:
        return findings.warn(
            f"booted {uptime_s / 60:.0f} min ago",
            measured=round(uptime_s),
            threshold=limits["young_warn_s"],
            unit="s",
        )
    if limits["old_warn_s"] is not None and uptime_s > limits["old_warn_s"]:
        return findings.warn(
            f"up for {days:.0f} days", measured=round(uptime_s), threshold=limits["old_warn_s"], unit="s"
        )
    return findings.ok(f"up for {days:.1f} days")


CHECK = registry.Check(
    proves="The node has been up long enough for its other readings to mean something.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    fails="never",
    warns="it booted less than young_warn_s ago, or has been up longer than old_warn_s",
    needs="/proc/uptime",
    next_step="Not planned? Look at the end of the last boot's log and at ipmi_sel.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "young_warn_s", 600.0, "s", "uptime below which we warn", "GCM check-node uptime 600 s"
        ),
        registry.Threshold("old_warn_s", None, "s", "uptime above which we warn; unset = never", "site"),
    ),
)
