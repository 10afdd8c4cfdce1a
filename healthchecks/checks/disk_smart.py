"""SATA and SAS disks by their own SMART verdict."""

from __future__ import annotations

import json
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

FAILING, PREFAIL = 0x08, 0x10
"""smartctl exit status bits: "DISK FAILING", and attributes at or below their threshold."""


def read(node: nodeview.NodeView) -> list[tuple[str, dict[str, Any] | None, str]]:
    """(disk, smartctl's JSON or None, why not) of every disk with a rotational or SSD queue behind SCSI."""
    names = [
        n
        for n in node.names("/sys/block")
        if n.startswith("sd") and node.text(f"/sys/block/{n}/removable") != "1"
    ]
    if not names:
        raise findings.Absent("no SATA or SAS disk")
    if node.which("smartctl") is None:
        raise findings.Absent("smartctl is not installed")
    return [(name, *_ask(node, name)) for name in names]


def _ask(node: nodeview.NodeView, name: str) -> tuple[dict[str, Any] | None, str]:
    answer = node.run("smartctl", "-H", "-j", "-n", "standby", f"/dev/{name}")
    try:
        report = json.loads(answer.out)
    except ValueError:
        report = None
    if isinstance(report, dict):
        return report, ""
    return None, (answer.err or answer.out).strip()[:200] or "smartctl answered nothing"


def judge(disks: list[tuple[str, dict[str, Any] | None, str]], _: registry.Limits) -> findings.Finding:
    return findings.merge([_one(*row) for row in disks], healthy=f"{len(disks)} disks pass their own test")


def _one(name: str, report: dict[str, Any] | None, problem: str) -> findings.Finding:
    if report is None:
        return findings.unseen(f"{name}: {problem}", device=name)
    status = report.get("smartctl", {}).get("exit_status", 0)
    passed = report.get("smart_status", {}).get("passed")
    if passed is False or status & FAILING:
        return findings.fail(f"{name} says that it is failing", device=name)
    if status & PREFAIL:
        return findings.warn(f"{name} has an attribute below its limit", device=name)
    if passed is None:
        return findings.absent(f"{name} has no SMART verdict", device=name)
    return findings.ok(name, device=name)


CHECK = registry.Check(
    proves="No SATA or SAS disk predicts its own failure.",
    component="block",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="tools",
    deadline_s=15.0,
    period_s=3600.0,
    fails="a disk's own SMART verdict is FAILED",
    warns="an attribute is at or below the vendor's limit",
    needs="a SATA or SAS disk, and smartctl",
    next_step="Replace the disk.",
    read=read,
    judge=judge,
)
