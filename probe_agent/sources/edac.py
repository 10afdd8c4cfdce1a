"""Memory errors counted by EDAC, per controller and DIMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks.readers import edac
from probing_cluster.probe_agent.faults import baseline
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import polled


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    return await reader.files(edac.FILES)


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """A new uncorrected error is grave; corrected ones are reported at 1, 10, 100 …"""
    counters = baseline.Baseline.of(memory, context.boot_id)
    edges: list[ConditionEdge] = []
    # A file that failed is a count that could not be read, and its DIMM is there.
    parts = edac.parse({**dict.fromkeys(raw["errors"]), **raw["files"]})
    for part, counts in parts.items():
        bad = counters.move(f"{part}:ue", counts.uncorrected)
        if bad is not None and bad.delta and not bad.was_reset:
            edges.append(_edge(part, "uncorrected", records.Severity.HIGH, bad))
        before = counters.values.get(f"{part}:ce")
        small = counters.move(f"{part}:ce", counts.corrected)
        if small is None or before is None or not small.delta or small.was_reset:
            continue
        if baseline.decade(small.value) > baseline.decade(before):
            edges.append(_edge(part, "corrected", records.Severity.INFO, small))
    return Judgement(
        edges=tuple(edges),
        memory={"boot_id": context.boot_id, "counters": counters.values},
        state="ok" if parts else "absent",
    )


def _edge(part: str, code: str, severity: records.Severity, moved: baseline.CounterChange) -> ConditionEdge:
    what = Condition(
        kind="edac",
        code=code,
        device=part,
        severity=severity,
        message=f"{moved.delta} more {code} memory errors in {part}, {moved.value} since boot",
        measured=float(moved.delta),
        unit="count",
        detail={"total": moved.value},
    )
    return ConditionEdge(what=what, value=moved.position, latches=severity is records.Severity.HIGH)


SOURCE = polled.Polled(
    name="edac",
    source="sysfs",
    read=read,
    judge=judge,
    reads="`/sys/devices/system/edac/mc`",
    stands="uncorrected error · – · corrected",
)
