"""Large contiguous memory is still to be had."""

from __future__ import annotations

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import findings, nodeview, registry


def parse(text: str) -> dict[str, list[int]]:
    """Free blocks by order, 0 first, of the Normal zone of each NUMA node in a /proc/buddyinfo text."""
    zones: dict[str, list[int]] = {}
    for line in text.splitlines():
        head, _, rest = line.partition(", zone")
        words = rest.split()
        if words[:1] == ["Normal"]:
            zones[head.removeprefix("Node").strip()] = [int(w) for w in words[1:] if digits.is_number(w)]
    return zones


def read(node: nodeview.NodeView) -> dict[str, list[int]]:
    zones = parse(node.text("/proc/buddyinfo") or "")
    if not zones:
        raise findings.Absent("no Normal zone in /proc/buddyinfo")
    return zones


def judge(free_by_numa: dict[str, list[int]], limits: registry.Limits) -> findings.Finding:
    order, least = limits["order"], limits["blocks_min"]
    parts = []
    for numa, free in free_by_numa.items():
        blocks = sum(free[order:])
        facts = {
            "device": f"numa{numa}",
            "measured": float(blocks),
            "threshold": float(least),
            "unit": "count",
        }
        if blocks < least:
            parts.append(
                findings.warn(f"NUMA node {numa} has {blocks} free blocks of order {order} and more", **facts)
            )
        else:
            parts.append(findings.ok("", **facts))
    return findings.merge(
        parts, healthy=f"large blocks free on {findings.plural(len(free_by_numa), 'NUMA node')}"
    )


CHECK = registry.Check(
    proves="The kernel can still hand out large contiguous memory (huge pages, RDMA registrations).",
    component="memory",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    fails="never",
    warns="a NUMA node has fewer than blocks_min free blocks of `order` pages and more",
    needs="/proc/buddyinfo",
    next_step="Between jobs: echo 1 > /proc/sys/vm/compact_memory; page cache that cannot be dropped points at a leak.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold("order", 8, "", "block order: 2^order pages (8 = 1 MiB)", "GCM check-buddyinfo"),
        registry.Threshold("blocks_min", 10, "count", "least number of free blocks", "GCM check-buddyinfo"),
    ),
)
