"""All of the node's memory is there."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import findings, nodeview, registry


@dataclass(frozen=True, kw_only=True)
class Reading:
    """MemTotal, what slurm.conf says (RealMemory), and the DIMMs that EDAC knows."""

    total_bytes: int
    configured_bytes: int | None
    dimms: int | None


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes (plain counts as they are)."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and digits.is_number(words[0]):
            values[key] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return values


def read(node: nodeview.NodeView) -> Reading:
    info = parse_meminfo(node.text("/proc/meminfo") or "")
    if "MemTotal" not in info:
        raise findings.Undetermined("no MemTotal in /proc/meminfo")
    base = "/sys/devices/system/edac/mc"
    dimms = [
        node.number(f"{base}/{mc}/{d}/size")
        for mc in node.names(base)
        if mc.startswith("mc")
        for d in node.names(f"{base}/{mc}")
        if d.startswith(("dimm", "rank"))
    ]
    return Reading(
        total_bytes=info["MemTotal"],
        configured_bytes=node.expected.memory_bytes,
        dimms=sum(1 for size in dimms if size) if dimms else None,
    )


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    if reading.dimms is not None and (missing := findings.too_few(reading.dimms, limits["dimms"], "DIMMs")):
        return missing[0]
    gib = reading.total_bytes / 2**30
    if limits["expected_bytes"] is not None:
        least = limits["expected_bytes"] * (1 - limits["tolerance_frac"])
    elif reading.configured_bytes is not None:
        least = float(reading.configured_bytes)  # slurmd itself goes down below RealMemory
    else:
        return findings.ok(f"{gib:.1f} GiB (no size is configured)")
    facts = {"measured": float(reading.total_bytes), "threshold": least, "unit": "bytes"}
    if reading.total_bytes < least:
        return findings.fail(f"{gib:.1f} GiB where at least {least / 2**30:.1f} GiB should be", **facts)
    return findings.ok(f"{gib:.1f} GiB", **facts)


CHECK = registry.Check(
    proves="No DIMM has dropped out: the kernel sees all the memory the node was bought with.",
    component="memory",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    fails="less memory than the site file (or Slurm's RealMemory) says, or fewer DIMMs",
    warns="never",
    needs="/proc/meminfo",
    next_step="Compare dmidecode -t memory with a healthy node; reseat or replace the missing DIMM.",
    read=read,
    judge=judge,
    learn=lambda reading: {"expected_bytes": reading.total_bytes, "dimms": reading.dimms},
    thresholds=(
        registry.Threshold(
            "expected_bytes",
            None,
            "bytes",
            "MemTotal of a healthy node; unset = Slurm's RealMemory",
            "site (genconf); NHC check_hw_physmem",
            unset=int,
        ),
        registry.Threshold(
            "tolerance_frac",
            0.02,
            "frac",
            "share that may be missing: firmware and crash kernels reserve some",
            "ours: half of one of 24 DIMMs",
        ),
        registry.Threshold(
            "dimms",
            None,
            "count",
            "DIMMs that EDAC must see",
            "site (genconf); GCM check-mem-size",
            unset=int,
        ),
    ),
)
