"""The BMC's event log has no new hardware fault. It is read, never cleared."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import sel

_SERIOUS = (
    ("power supply", re.compile(r"power supply.*(?:failure|lost|fault)|psu.*(?:fail|lost)", re.IGNORECASE)),
    ("memory", re.compile(r"(?:memory|dimm).*uncorrectable|uncorrectable ecc", re.IGNORECASE)),
    (
        "processor",
        re.compile(
            r"processor.*(?:ierr|thermal trip|frb|configuration error)|cpu.*machine check", re.IGNORECASE
        ),
    ),
    (
        "critical interrupt",
        re.compile(
            r"critical interrupt.*(?:pci [sp]err|fatal|bus (?:uncorrectable|fatal)|nmi)", re.IGNORECASE
        ),
    ),
    ("temperature", re.compile(r"temperature.*(?:upper non-recoverable|upper critical)", re.IGNORECASE)),
    (
        "fan",
        re.compile(r"\bfan.*(?:lower non-recoverable|lower critical|failure|redundancy lost)", re.IGNORECASE),
    ),
    ("drive", re.compile(r"drive slot.*(?:fault|predictive failure)", re.IGNORECASE)),
)


_REDUNDANT = {"power supply", "fan"}
"""One lost feed takes half the supplies of a row, and no job: shown, not acted on."""


def read(node: nodeview.NodeView) -> tuple[list[sel.SelEntry], datetime]:
    """(entries, now)."""
    if not any(node.exists(f"/dev/{name}") for name in ("ipmi0", "ipmi/0", "ipmidev/0")):
        raise findings.Absent("no BMC (no /dev/ipmi0)")
    answer = node.run(sel.TOOL, "sel", "elist")
    if answer.code != 0:
        raise findings.Undetermined(f"{sel.TOOL}: {(answer.err or answer.out).strip()[:150]}")
    entries = sel.parse(answer.out)
    # By entry and not by time: the BMC's clock is its own.
    node.memory["last"] = {e.identity: 1 for e in entries if _serious(e)}
    cleared = node.memory.get("cleared", {})
    return [e for e in entries if e.identity not in cleared], node.now


def _serious(entry: sel.SelEntry) -> str | None:
    """The part an entry accuses."""
    return next((part for part, pattern in _SERIOUS if pattern.search(entry.text)), None)


def judge(reading: tuple[list[sel.SelEntry], datetime], limits: registry.Limits) -> findings.Finding:
    entries, now = reading
    since = now - timedelta(seconds=limits["window_s"])
    parts = [findings.ok("")]
    for entry in entries:
        part = _serious(entry)
        # An entry without a date may be years old: it cannot speak for today.
        if part and entry.asserted and entry.at is not None and since <= entry.at <= now + timedelta(hours=1):
            make = findings.warn if part in _REDUNDANT else findings.fail
            parts.append(make(f"{entry.at:%Y-%m-%d %H:%M}Z {entry.text}", device=part))
    if len(entries) >= limits["full_warn"]:
        text = f"the event log holds {len(entries)} entries: when full, new ones are lost"
        parts.append(findings.warn(text, **findings.amount(len(entries), limits["full_warn"], "count")))
    return findings.merge(parts, healthy=f"{len(entries)} entries, none of them a new fault")


CHECK = registry.Check(
    proves="The BMC has logged no hardware fault lately.",
    component="ipmi",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="ipmi",
    deadline_s=20.0,
    period_s=900.0,
    fails="a fault of memory, processor, PCIe, temperature or drive was asserted within window_s",
    warns="a power supply or a fan was lost (they are redundant), or the log is nearly full",
    needs="a BMC (/dev/ipmi0) and ipmitool",
    next_step="ipmitool sel elist has the whole story; open a ticket with it. We never clear the log.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "window_s",
            86400.0,
            "s",
            "how far back entries count",
            "ours; GCM counts all, then clears the log at 40 lines",
        ),
        registry.Threshold(
            "full_warn",
            3000,
            "count",
            "entries from which we warn that the log fills up",
            "ours: common BMCs hold 3,639 to 10,000",
        ),
    ),
)
