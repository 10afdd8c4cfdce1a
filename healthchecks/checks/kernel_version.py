"""The node runs the kernel it should."""

from __future__ import annotations

import fnmatch

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry


def read(node: nodeview.NodeView) -> str:
    """The kernel release."""
    release = node.text("/proc/sys/kernel/osrelease")
    if not release:
        raise findings.Undetermined("no kernel release in /proc")
    return release


def judge(release: str, limits: registry.Limits) -> findings.Finding:
    wanted: list[str] = limits["expected"]
    if wanted and not any(fnmatch.fnmatchcase(release, pattern) for pattern in wanted):
        return findings.fail(f"kernel {release}, the site has {' or '.join(wanted)}")
    return findings.ok(f"kernel {release}")


CHECK = registry.Check(
    proves="The node booted the kernel the site runs.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    period_s=3600.0,
    fails="the kernel release matches none of `expected`",
    warns="never",
    needs="/proc",
    next_step="Boot the right image.",
    read=read,
    judge=judge,
    learn=lambda release: {"expected": [release]},
    thresholds=(
        registry.Threshold(
            "expected", [], "", "kernel releases accepted, * allowed; empty = any", "site (genconf)"
        ),
    ),
)
