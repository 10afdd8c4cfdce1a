"""All CPUs are online."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import errors, hostlist, records
from probing_cluster.healthchecks import findings, nodeview, registry

BASE = "/sys/devices/system/cpu"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """CPUs online and present, and what slurm.conf says."""

    online: int
    present: int | None
    """None also where the kernel keeps the second threads of all cores offline (`nosmt`)."""
    configured: int | None


def parse_list(text: str | None) -> int | None:
    """How many CPUs `0-63,66` lists; None when it is not such a list."""
    if text is None:
        return None
    try:
        return len(hostlist.expand(f"c[{text.strip()}]")) if text.strip() else 0
    except errors.MalformedInput:
        return None


def read(node: nodeview.NodeView) -> Reading:
    online = parse_list(node.text(f"{BASE}/online"))
    if online is None:
        online = sum(line.startswith("processor") for line in (node.text("/proc/cpuinfo") or "").splitlines())
    if not online:
        raise findings.Undetermined("neither sysfs nor /proc/cpuinfo lists the CPUs")
    without_smt = node.text(f"{BASE}/smt/control") in ("off", "forceoff")
    present = None if without_smt else parse_list(node.text(f"{BASE}/present"))
    return Reading(online=online, present=present, configured=node.expected.cpu_count)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    wanted: int | None = limits["expected"] if limits["expected"] is not None else reading.configured
    facts = {"measured": float(reading.online), "unit": "count"}
    if wanted is not None and reading.online < wanted:
        return findings.fail(f"{reading.online} of {wanted} CPUs online", threshold=float(wanted), **facts)
    if reading.present is not None and reading.online < reading.present and reading.online != wanted:
        return findings.warn(
            f"{reading.present - reading.online} CPUs are offline", threshold=float(reading.present), **facts
        )
    return findings.ok(
        f"{reading.online} CPUs online", threshold=None if wanted is None else float(wanted), **facts
    )


CHECK = registry.Check(
    proves="No CPU has been lost or taken offline.",
    component="cpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    fails="fewer CPUs online than the site file (or Slurm) says",
    warns="a CPU that is present is offline, unless exactly the number configured is online or SMT is off",
    needs="/sys/devices/system/cpu or /proc/cpuinfo",
    next_step="Look for machine checks and BIOS settings (SMT, disabled cores).",
    read=read,
    judge=judge,
    learn=lambda reading: {"expected": reading.online},
    thresholds=(
        registry.Threshold(
            "expected",
            None,
            "count",
            "CPUs (threads) that must be online; unset = Slurm's CPUs",
            "site (genconf); NHC check_hw_cpuinfo",
            unset=int,
        ),
    ),
)
