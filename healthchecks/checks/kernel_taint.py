"""The kernel has not broken since boot."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

BROKEN = {4: "a machine check", 7: "an oops or BUG", 14: "a soft lockup"}
SUSPECT = {5: "a bad page", 9: "a kernel warning"}
"""Bits of /proc/sys/kernel/tainted (Linux Documentation/admin-guide/tainted-kernels.rst). Out-of-tree modules taint too: no fault."""


def read(node: nodeview.NodeView) -> int:
    """The taint mask."""
    mask = node.number("/proc/sys/kernel/tainted")
    if mask is None:
        raise findings.Absent("the kernel does not tell its taint")
    return mask


def judge(mask: int, _: registry.Limits) -> findings.Finding:
    broken = [text for bit, text in BROKEN.items() if mask >> bit & 1]
    suspect = [text for bit, text in SUSPECT.items() if mask >> bit & 1]
    facts = {"measured": float(mask), "unit": "mask"}
    if broken:
        return findings.fail(f"the kernel has had {', '.join(broken + suspect)} since boot", **facts)
    if suspect:
        return findings.warn(f"the kernel has had {', '.join(suspect)} since boot", **facts)
    return findings.ok("no oops, lockup or machine check since boot", **facts)


CHECK = registry.Check(
    proves="The kernel has had no oops, soft lockup or machine check since boot.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="the taint mask has the bit of an oops, a soft lockup or a machine check",
    warns="it has the bit of a bad page or a warning",
    needs="/proc/sys/kernel/tainted",
    next_step="Save the kernel log (the first trace matters), then reboot the node when it is empty.",
    read=read,
    judge=judge,
)
