"""The node's clock against its time servers: evidence from a clock that is wrong lies about its order."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import baseline
from probing_cluster.probe_agent.faults.conditions import Condition, Judgement
from probing_cluster.probe_agent.sources import polled

WARN_S, BAD_S = 0.05, 1.0
LASTING = 3
_NTPQ_OFFSET = re.compile(r"\boffset=([-+]?[\d.]+)")
_NTPQ_LEAP = re.compile(r"\bleap=(\d+)")


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    """The first time daemon that answers."""
    for name, args in (
        ("chronyc", ("-c", "-n", "tracking")),
        ("ntpq", ("-c", "rv 0 leap,offset")),
        ("timedatectl", ("show", "--property=NTPSynchronized")),
    ):
        result = await reader.command(name, *args)
        if result is not None and result.returncode == 0:
            return {"tool": name, "text": result.stdout.decode("utf-8", "replace")}
    return {}


def parse(raw: Mapping[str, Any]) -> tuple[float | None, bool | None]:
    """(seconds the clock is off, whether it is synchronised); None where the tool does not say."""
    text = raw.get("text", "")
    if raw.get("tool") == "chronyc":
        return _chronyc(text)
    if raw.get("tool") == "ntpq":
        offset, leap = _NTPQ_OFFSET.search(text), _NTPQ_LEAP.search(text)
        synchronised = None if leap is None else leap[1] not in {"3", "11"}
        return (float(offset[1]) / 1000 if offset is not None and synchronised else None), synchronised
    if raw.get("tool") == "timedatectl":
        return None, text.strip().lower() == "ntpsynchronized=yes"
    return None, None


def _chronyc(text: str) -> tuple[float | None, bool | None]:
    """`chronyc -c tracking`: reference id, address, stratum, reference time, system time (seconds off), …, leap status."""
    row = next(csv.reader(text.splitlines()), [])
    if len(row) < 14:
        return None, None
    synchronised = row[13] != "Not synchronised" and row[2] != "0"
    try:
        return (float(row[4]) if synchronised else None), synchronised
    except ValueError:
        return None, synchronised


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], _: polled.PollContext) -> Judgement:
    offset_s, synchronised = parse(raw)
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})))
    present: list[Condition] = []
    if streaks.at_least("unsynchronised", LASTING, holds=synchronised is False):
        present.append(
            _condition("unsynchronised", records.Severity.INFO, "the clock follows no time server", None)
        )
    if offset_s is not None and abs(offset_s) >= WARN_S:
        bad = abs(offset_s) >= BAD_S
        severity = records.Severity.LOW if bad else records.Severity.INFO
        text = f"the clock is {offset_s:+.3f} s off"
        present.append(_condition("skew" if bad else "drift", severity, text, abs(offset_s)))
    state = "absent" if not raw else "ok"
    return Judgement(present=tuple(present), memory={"streaks": streaks.counts}, state=state)


def _condition(code: str, severity: records.Severity, message: str, measured: float | None) -> Condition:
    threshold = {"skew": BAD_S, "drift": WARN_S}.get(code)
    return Condition(
        kind="clock_skew",
        code=code,
        device="clock",
        severity=severity,
        message=message,
        measured=measured,
        threshold=threshold,
        unit=None if measured is None else "s",
    )


SOURCE = polled.Polled(
    name="clock",
    source="service",
    read=read,
    judge=judge,
    every=6,
    reads="chronyc, ntpq or timedatectl",
    stands="– · 1 s off · 50 ms off, not synchronised",
)
