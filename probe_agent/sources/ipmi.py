"""The BMC's system event log: what the board itself recorded, also while the operating system was not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks.readers import sel
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import polled

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
MOST = 200
"""Entries reported at once; of a log that grew by more the newest are."""

_WORDS: tuple[tuple[str, str, records.Severity], ...] = (
    ("uncorrectable ecc", "memory_uncorrectable", HIGH),
    ("uncorrectable machine check", "machine_check", HIGH),
    ("bus fatal error", "pcie_fatal", HIGH),
    ("ierr", "processor_error", HIGH),
    ("pci serr", "pcie_fatal", HIGH),
    ("upper non-recoverable", "over_limit", LOW),
    ("upper critical", "over_limit", LOW),
    ("lower non-recoverable", "under_limit", LOW),
    ("power supply ac lost", "power_supply", LOW),
    ("failure detected", "failure", LOW),
    ("thermal trip", "thermal_trip", LOW),
    ("predictive failure", "predictive_failure", LOW),
    ("correctable ecc", "memory_correctable", INFO),
)
"""Words of an entry to its code and severity; the first that fits wins ("uncorrectable" before "correctable")."""


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    """`ipmitool` in CSV form; nothing where there is no tool or no BMC."""
    result = await reader.command(sel.TOOL, "-c", "sel", "elist")
    if result is None:
        return {"absent": "ipmitool is not installed"}
    if result.returncode != 0:
        return {"absent": result.stderr.decode("utf-8", "replace").strip()[:200]}
    return {"text": result.stdout.decode("utf-8", "replace")}


def grade(entry: sel.SelEntry) -> tuple[str, records.Severity]:
    """Code and severity of an entry; what we do not know is kept as information."""
    if entry.asserted:
        words = f"{entry.sensor} {entry.event}".lower()
        for word, code, severity in _WORDS:
            if word in words:
                return code, severity
    return "entry", INFO


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], _: polled.PollContext) -> Judgement:
    """Entries added since the last reading. The first reading is where counting begins: old entries are history."""
    if "absent" in raw:
        return Judgement(memory=memory, state=f"absent: {raw['absent']}")
    entries = sel.parse(raw["text"])
    recorded = memory.get("seen")
    fresh: list[sel.SelEntry] = []
    if recorded is not None:
        known = set(recorded)
        fresh = [e for e in entries if e.identity not in known][-MOST:]
    return Judgement(
        edges=tuple(_edge(e) for e in fresh), memory={"seen": [e.identity for e in entries][-4096:]}
    )


def _edge(entry: sel.SelEntry) -> ConditionEdge:
    code, severity = grade(entry)
    what = Condition(
        kind="ipmi",
        code=code,
        device=entry.sensor,
        severity=severity,
        message=f"system event log: {entry.sensor}: {entry.event}",
        # The BMC keeps its own clock, often wrong: its time is shown, and our own is used.
        detail={"sel_number": entry.number, "sel_time": entry.written_at, "asserted": entry.asserted},
    )
    return ConditionEdge(what=what, value=entry.identity)


SOURCE = polled.Polled(
    name="ipmi",
    source="ipmi",
    read=read,
    judge=judge,
    every=30,
    reads="`ipmitool sel`",
    stands="uncorrectable ECC, machine check, fatal bus error · limits, power supply · the rest",
)
