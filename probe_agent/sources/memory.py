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
NUMA = "/sys/devices/system/node"
SHRUNK_FRAC = 0.98
"""Kernels differ by less than this in what they keep for themselves; the smallest DIMM is more."""
_OF_NODE = re.compile(r"^Node \d+ MemTotal:\s+(\d+) kB$", re.MULTILINE)
_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    return await reader.files([FILE, f"{NUMA}/node*/cpulist", f"{NUMA}/node*/meminfo"])


def parse(raw: Mapping[str, Any]) -> dict[str, int]:
    """Name to bytes."""
    return {name: int(kib) * 1024 for name, kib in _LINE.findall(sysfs.text(raw, FILE) or "")}


def _without_cpus(raw: Mapping[str, Any]) -> int:
    """Bytes on NUMA nodes without CPUs: a GPU's memory, there once its driver is loaded, or memory behind CXL."""
    nodes = [n for (n,) in sysfs.matching(raw, rf"{NUMA}/(node\d+)/meminfo")]
    texts = [
        sysfs.text(raw, f"{NUMA}/{n}/meminfo") for n in nodes if sysfs.text(raw, f"{NUMA}/{n}/cpulist") == ""
    ]
    return sum(int(found[1]) * 1024 for text in texts if (found := _OF_NODE.search(text or "")))


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    meminfo = parse(raw)
    total = meminfo.get("MemTotal")
    if total is None:
        return Judgement(unknown=frozenset({"*"}), memory=memory, state="unreadable")
    total = max(0, total - _without_cpus(raw))
    best = total if context.relearn else max(total, int(memory.get("own_bytes", 0)))
    # A boot shows what a DIMM less leaves; what goes away later is a hypervisor's or an operator's doing.
    same_boot = memory.get("boot_id") == context.boot_id and not context.relearn
    most = max(total, int(memory.get("boot_bytes", 0))) if same_boot else total
    present: list[Condition] = []
    if most < best * SHRUNK_FRAC:
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
    kept = {"boot_id": context.boot_id, "own_bytes": best, "boot_bytes": most, "counters": counters.values}
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
    stands="– · less memory than before this boot, memory the kernel gave up · –",
)
