"""No process has been sleeping in the kernel where nothing can wake it."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import procs


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Processes in D state now with how long each has not run once, and how many processes there are."""

    stuck: tuple[tuple[procs.Process, float], ...]
    total: int


def read(node: nodeview.NodeView) -> Reading:
    everyone = procs.listing(node)
    stuck = [p for p in everyone if p.state == "D" and not p.kernel_thread]
    # A process that does much I/O is in D state at many looks; one whose switch counts moved has run between them.
    keys = {f"{p.key}:{procs.switches(node, p.pid)}": p for p in stuck}
    lasting_s = procs.lasting(node, list(keys))
    return Reading(stuck=tuple((p, lasting_s.get(key, 0.0)) for key, p in keys.items()), total=len(everyone))


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for process, lasted_s in reading.stuck:
        if lasted_s >= limits["lasting_s"]:
            text = f"process {process.pid} ({process.name}, uid {process.uid}) in D state for {lasted_s / 60:.0f} min"
            facts = {"measured": round(lasted_s), "threshold": limits["lasting_s"], "unit": "s"}
            parts.append(findings.fail(text, device=process.name, detail={"pid": process.pid}, **facts))
    now = f", {len(reading.stuck)} in D state just now" if reading.stuck else ""
    return findings.merge(parts, healthy=f"{reading.total} processes, none stuck{now}")


CHECK = registry.Check(
    proves="No user process has been stuck in the kernel (D state) for long.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="the same process is in D state at every look for lasting_s and has not run once between them",
    warns="never: a moment in D state is ordinary I/O",
    needs="processes in /proc",
    next_step="cat /proc/<pid>/stack names what it waits for: a file server, the GPU driver, a disk. It cannot be killed.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "lasting_s",
            300.0,
            "s",
            "how long a process must be in D state without running once to fail",
            "GCM check-dstate 300 s",
        ),
    ),
)
