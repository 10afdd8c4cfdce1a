"""Host memory: less of it than before (a DIMM the firmware took away), and pages the kernel gave up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import baseline
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import polled, sysfs

FILE = "/proc/meminfo"
SHRUNK_FRAC = 0.98
"""Kernels differ by less than this in what they keep for themselves; the smallest DIMM is more."""
_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    return await reader.files([FILE])


def parse(raw: Mapping[str, Any]) -> dict[str, int]:
    """Name to bytes."""
    return {name: int(kib) * 1024 for name, kib in _LINE.findall(sysfs.text(raw, FILE) or "")}


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    meminfo = parse(raw)
    total = meminfo.get("MemTotal")
    if total is None:
        return Judgement(unknown=frozenset({"*"}), memory=memory, state="unreadable")
    best = total if context.relearn else max(total, int(memory.get("most_bytes", 0)))
    present: list[Condition] = []
    if total < best * SHRUNK_FRAC:
        present.append(
            Condition(
                kind="memory",
                code="size",
                device="memory",
                severity=records.Severity.LOW,
                message=f"{total / 2**30:.1f} GiB of memory, it was {best / 2**30:.1f} GiB",
                measured=float(total),
                threshold=float(best),
                unit="bytes",
            )
        )
    counters = baseline.Baseline.of(memory, context.boot_id)
    moved = counters.move("hardware_corrupted", meminfo.get("HardwareCorrupted"))
    edges: tuple[ConditionEdge, ...] = ()
    if moved is not None and moved.delta and not moved.was_reset:
        edges = (_corrupted(moved),)
    kept = {"boot_id": context.boot_id, "most_bytes": best, "counters": counters.values}
    return Judgement(present=tuple(present), edges=edges, memory=kept)


def _corrupted(moved: baseline.CounterChange) -> ConditionEdge:
    what = Condition(
        kind="memory",
        code="hardware_corrupted",
        device="memory",
        severity=records.Severity.LOW,
        message=f"the kernel gave up {moved.delta // 1024} KiB more of memory for hardware errors",
        measured=float(moved.delta),
        unit="bytes",
    )
    return ConditionEdge(what=what, value=moved.position, latches=False)


SOURCE = polled.Polled(
    name="memory",
    source="sysfs",
    read=read,
    judge=judge,
    every=6,
    reads="`/proc/meminfo`",
    stands="– · less memory than before, memory the kernel gave up · –",
)
