"""No crowd of dead processes that nobody collects."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import procs


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Zombies now, and how long each has been seen so."""

    zombies: tuple[procs.Process, ...]
    lasting_s: dict[str, float]


def read(node: nodeview.NodeView) -> Reading:
    zombies = [p for p in procs.listing(node) if p.state == "Z"]
    return Reading(zombies=tuple(zombies), lasting_s=procs.lasting(node, [p.key for p in zombies]))


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    old = [p for p in reading.zombies if reading.lasting_s.get(p.key, 0.0) >= limits["lasting_s"]]
    facts = {"measured": float(len(old)), "threshold": float(limits["count_warn"]), "unit": "count"}
    if len(old) > limits["count_warn"]:
        names = ", ".join(sorted({p.name for p in old})[:4])
        text = f"{len(old)} zombies older than {limits['lasting_s'] / 60:.0f} min ({names})"
        return findings.warn(text, device=f"pid {old[0].parent}", **facts)
    return findings.ok(f"{len(reading.zombies)} zombies, {len(old)} of them old", **facts)


CHECK = registry.Check(
    proves="No program on the node lets its dead children pile up.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    fails="never",
    warns="more than count_warn processes have been zombies for lasting_s",
    needs="processes in /proc",
    next_step="The parent (its process id is the device) must collect them; a zombie whose parent is in D state waits for that.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "lasting_s", 300.0, "s", "how long a process must be a zombie to count", "GCM check-zombie 300 s"
        ),
        registry.Threshold(
            "count_warn", 10, "count", "old zombies above which we warn", "ours; GCM warns at one"
        ),
    ),
)
