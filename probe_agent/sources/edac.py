"""Memory errors counted by EDAC, per controller and DIMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent import baseline
from probing_cluster.probe_agent.conditions import Condition, Edge, Judgement
from probing_cluster.probe_agent.sources import polled, sysfs

ROOT = "/sys/devices/system/edac/mc"
_READ = (
    f"{ROOT}/mc*/ce_count",
    f"{ROOT}/mc*/ue_count",
    f"{ROOT}/mc*/dimm*/dimm_ce_count",
    f"{ROOT}/mc*/dimm*/dimm_ue_count",
    f"{ROOT}/mc*/dimm*/dimm_label",
)


async def read(reach: polled.Reach, _: Mapping[str, Any], __: polled.Context) -> Mapping[str, Any]:
    return await reach.files(_READ)


def parse(raw: Mapping[str, Any]) -> dict[str, tuple[int | None, int | None]]:
    """Part (a DIMM's label, or its controller) to (corrected, uncorrected) counts.

    A controller's own counts are used only where it lists no DIMM: they are the sum of its DIMMs'.
    """
    found: dict[str, tuple[int | None, int | None]] = {}
    for (controller,) in sysfs.matching(raw, rf"{ROOT}/(mc\d+)/[cu]e_count"):
        dimms = [
            d
            for c, d in sysfs.matching(raw, rf"{ROOT}/(mc\d+)/(dimm\d+)/dimm_[cu]e_count")
            if c == controller
        ]
        for dimm in dimms:
            base = f"{ROOT}/{controller}/{dimm}"
            label = sysfs.text(raw, f"{base}/dimm_label") or f"{controller}/{dimm}"
            counts = (sysfs.number(raw, f"{base}/dimm_ce_count"), sysfs.number(raw, f"{base}/dimm_ue_count"))
            found[label if label not in found else f"{controller}/{dimm}"] = counts
        if not dimms:
            base = f"{ROOT}/{controller}"
            found[controller] = (sysfs.number(raw, f"{base}/ce_count"), sysfs.number(raw, f"{base}/ue_count"))
    return found


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.Context) -> Judgement:
    """A new uncorrected error is grave; corrected ones are told at 1, 10, 100 …"""
    counters = baseline.Baseline.of(memory, context.boot_id)
    edges: list[Edge] = []
    parts = parse(raw)
    for part, (corrected, uncorrected) in parts.items():
        bad = counters.move(f"{part}:ue", uncorrected)
        if bad is not None and bad.delta and not bad.was_reset:
            edges.append(_edge(part, "uncorrected", records.Severity.HIGH, bad))
        before = counters.values.get(f"{part}:ce")
        small = counters.move(f"{part}:ce", corrected)
        if small is None or before is None or not small.delta or small.was_reset:
            continue
        if baseline.decade(small.value) > baseline.decade(before):
            edges.append(_edge(part, "corrected", records.Severity.INFO, small))
    return Judgement(
        edges=tuple(edges),
        memory={"boot_id": context.boot_id, "counters": counters.values},
        state="ok" if parts else "absent",
    )


def _edge(part: str, code: str, severity: records.Severity, moved: baseline.Move) -> Edge:
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
    return Edge(what=what, value=moved.position, latches=severity is records.Severity.HIGH)


SOURCE = polled.Polled(
    name="edac",
    source="sysfs",
    read=read,
    judge=judge,
    reads="`/sys/devices/system/edac/mc`",
    stands="uncorrected error · – · corrected",
)
