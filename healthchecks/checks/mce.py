"""Machine check exceptions of the CPUs."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import counters, findings, nodeview, registry

_ROWS = {"MCE": "exceptions", "THR": "threshold", "TRM": "thermal", "DFR": "deferred"}
"""Rows of /proc/interrupts on x86: machine check exceptions, corrected-error threshold, thermal events, deferred errors."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Exceptions and deferred errors since boot or cleared; the other interrupts within a day."""

    since_cleared: dict[str, int]
    day: dict[str, int]


def parse(text: str) -> dict[str, int]:
    """Sums over all CPUs of the rows we know."""
    sums: dict[str, int] = {}
    for line in text.splitlines():
        head, _, rest = line.lstrip().partition(":")
        if head in _ROWS:
            sums[_ROWS[head]] = sum(int(word) for word in rest.split() if digits.is_number(word))
    return sums


def read(node: nodeview.NodeView) -> Reading:
    sums = parse(node.text("/proc/interrupts") or "")
    if "exceptions" not in sums:
        raise findings.Absent("this CPU does not count machine checks")
    return Reading(
        since_cleared=counters.since_cleared(
            node, {k: v for k, v in sums.items() if k in ("exceptions", "deferred")}
        ),
        day=counters.within(node, counters.growth(node, {**sums}), counters.DAY_S),
    )


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for kind, count in reading.since_cleared.items():
        if count:
            text = f"{count} machine check {'exceptions' if kind == 'exceptions' else 'deferred errors'}"
            parts.append(findings.fail(text, device="cpu", **findings.amount(count, 0, "count")))
    thermal, most = reading.day.get("thermal", 0), limits["thermal_day_warn"]
    if thermal > most:
        facts = findings.amount(thermal, most, "per_day")
        parts.append(findings.warn(f"{thermal} CPU thermal events in 24 h", device="cpu", **facts))
    return findings.merge(parts, healthy="no machine check exception in this boot")


CHECK = registry.Check(
    proves="No CPU has raised a machine check exception in this boot since a person last cleared it.",
    component="cpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    fails="a machine check exception or a deferred (uncorrected, not yet used) error",
    warns="many CPU thermal events in 24 h",
    needs="an x86 CPU (rows MCE and DFR of /proc/interrupts)",
    next_step="rasdaemon or mcelog decodes the bank; memory banks point at a DIMM, others at the CPU.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "thermal_day_warn", 1000, "per_day", "CPU thermal events in 24 h above which we warn", "ours"
        ),
    ),
)
