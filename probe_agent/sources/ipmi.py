"""The BMC's system event log: what the board itself recorded, also while the operating system was not there."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.conditions import Condition, Edge, Judgement
from probing_cluster.probe_agent.sources import polled

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
MOST = 200
"""Newest entries told at once; a log that grew by more is told as its newest."""

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


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One record of the log."""

    number: str
    when: str
    sensor: str
    event: str
    asserted: bool

    @property
    def identity(self) -> str:
        return f"{self.number}:{self.when}:{self.sensor}"


async def read(reach: polled.Reach, _: Mapping[str, Any], __: polled.Context) -> Mapping[str, Any]:
    """`ipmitool` in CSV form; nothing where there is no tool or no BMC."""
    told = await reach.command("ipmitool", "-c", "sel", "elist")
    if told is None:
        return {"absent": "ipmitool is not installed"}
    if told.returncode != 0:
        return {"absent": told.stderr.decode("utf-8", "replace").strip()[:200]}
    return {"text": told.stdout.decode("utf-8", "replace")}


def parse(text: str) -> list[Entry]:
    """Entries in the log's order; lines that are none are left out."""
    found: list[Entry] = []
    for row in csv.reader(text.splitlines()):
        if len(row) < 5:
            continue
        number, date, time, sensor, event, *rest = (cell.strip() for cell in row)
        asserted = not rest or rest[0].lower() != "deasserted"
        found.append(
            Entry(number=number, when=f"{date} {time}", sensor=sensor, event=event, asserted=asserted)
        )
    return found


def grade(entry: Entry) -> tuple[str, records.Severity]:
    """Code and severity of an entry; what we do not know is kept as information."""
    if entry.asserted:
        words = f"{entry.sensor} {entry.event}".lower()
        for word, code, severity in _WORDS:
            if word in words:
                return code, severity
    return "entry", INFO


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], _: polled.Context) -> Judgement:
    """Entries added since the last reading. The first reading is where counting begins: old entries are history."""
    if "absent" in raw:
        return Judgement(memory=memory, state=f"absent: {raw['absent']}")
    entries = parse(raw["text"])
    seen = memory.get("seen")
    fresh: list[Entry] = []
    if seen is not None:
        known = set(seen)
        fresh = [e for e in entries if e.identity not in known][-MOST:]
    return Judgement(
        edges=tuple(_edge(e) for e in fresh), memory={"seen": [e.identity for e in entries][-4096:]}
    )


def _edge(entry: Entry) -> Edge:
    code, severity = grade(entry)
    what = Condition(
        kind="ipmi",
        code=code,
        device=entry.sensor,
        severity=severity,
        message=f"system event log: {entry.sensor}: {entry.event}",
        # The BMC keeps its own clock, often wrong: its time is told, and our own is used.
        detail={"sel_number": entry.number, "sel_time": entry.when, "asserted": entry.asserted},
    )
    return Edge(what=what, value=entry.identity)


SOURCE = polled.Polled(
    name="ipmi",
    source="ipmi",
    read=read,
    judge=judge,
    every=30,
    reads="`ipmitool sel`",
    stands="uncorrectable ECC, machine check, fatal bus error · limits, power supply · the rest",
)
