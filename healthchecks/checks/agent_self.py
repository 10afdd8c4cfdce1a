"""The sweep itself is in order: nothing stuck, the site file in force, no check failing to run again and again."""

from __future__ import annotations

from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry


def read(node: nodeview.NodeView) -> dict[str, Any]:
    return dict(node.spec.self_state)


def judge(report: dict[str, Any], limits: registry.Limits) -> findings.Finding:
    parts: list[findings.Finding] = []
    for stuck in report.get("stuck", []):
        where = f" in {stuck['waits_in']}" if stuck["waits_in"] else ""
        text = f"a child for {stuck['what']} (pid {stuck['pid']}) is stuck in the kernel{where} for {stuck['age_s']:.0f} s"
        make = findings.fail if stuck["age_s"] >= limits["stuck_fail_s"] else findings.warn
        facts = {"measured": stuck["age_s"], "threshold": limits["stuck_fail_s"], "unit": "s"}
        parts.append(make(text, device=stuck["what"], **facts))
    problems = ("site_problem", "memory_problem", "agent_problem")
    parts += [findings.warn(str(report[key]), device=key) for key in problems if report.get(key)]
    errors = report.get("errors", [])
    if len(errors) > limits["errors_warn"]:
        text = f"{findings.plural(len(errors), 'check')} could not run: {', '.join(errors[:6])}"
        parts.append(findings.warn(text, **findings.amount(len(errors), limits["errors_warn"], "count")))
    return findings.merge(parts or [findings.ok("")], healthy="nothing stuck, site file in force")


CHECK = registry.Check(
    proves="The checks themselves can be trusted: none is stuck, and the site file on disk is the one in force.",
    component="agent",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="self",
    fails="a child of ours has been stuck in the kernel for stuck_fail_s: something on this node is",
    warns="a child is stuck, the site file is broken, the state cannot be kept, or several checks cannot run",
    needs="nothing",
    next_step="Stuck: read the kernel function it sleeps in, and reboot the node when empty. Site file: fix the line it names.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "stuck_fail_s",
            600.0,
            "s",
            "how long a child may be stuck before the node is unwell",
            "ours: two sweeps; hung_task_timeout_secs is 120 s",
        ),
        registry.Threshold("errors_warn", 0, "count", "checks that could not run before we warn", "ours"),
    ),
)
