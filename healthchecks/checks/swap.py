"""Swap is as configured and hardly used."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.checks import memory_size


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Swap in bytes."""

    total_bytes: int
    used_bytes: int


def read(node: nodeview.NodeView) -> Reading:
    info = memory_size.parse_meminfo(node.text("/proc/meminfo") or "")
    if "SwapTotal" not in info or "SwapFree" not in info:
        raise findings.Undetermined("no SwapTotal in /proc/meminfo")
    if not info["SwapTotal"] and not node.limits["expected_bytes"]:
        raise findings.Absent("no swap on this node")
    return Reading(total_bytes=info["SwapTotal"], used_bytes=info["SwapTotal"] - info["SwapFree"])


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    wanted = limits["expected_bytes"]
    if wanted is not None and reading.total_bytes < wanted * 0.99:
        text = f"{reading.total_bytes / 2**30:.1f} GiB of swap"
        return findings.warn(text, **findings.amount(reading.total_bytes, wanted, "bytes"))
    used = reading.used_bytes / reading.total_bytes if reading.total_bytes else 0.0
    facts = {"measured": round(used, 4), "threshold": limits["used_warn_frac"], "unit": "frac"}
    if used > limits["used_warn_frac"]:
        return findings.warn(f"{used:.0%} of swap is in use", **facts)
    return findings.ok(f"{used:.0%} of swap is in use", **facts)


CHECK = registry.Check(
    proves="The node is not living off its swap.",
    component="memory",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.INFO,
    fails="never",
    warns="more of swap is used than used_warn_frac, or there is less swap than expected",
    needs="swap",
    next_step="Find who was swapped out (VmSwap in /proc/<pid>/status); jobs without a memory limit are the usual cause.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "expected_bytes",
            None,
            "bytes",
            "swap the node should have; unset = any",
            "site; NHC check_hw_swap",
            unset=int,
        ),
        registry.Threshold(
            "used_warn_frac",
            0.5,
            "frac",
            "used share above which we warn",
            "ours; NHC check_hw_swap_free takes it as an argument",
        ),
    ),
)
