"""Main-memory errors that the memory controllers count (EDAC)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import edac


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Uncorrected errors since boot or cleared, corrected ones within a day, by DIMM or controller."""

    uncorrected: dict[str, int]
    corrected_day: dict[str, int]
    parts: int


def read(node: nodeview.NodeView) -> Reading:
    counts = edac.parse({path: node.text(path) for path in _paths(node)})
    uncorrected = {part: c.uncorrected for part, c in counts.items()}
    corrected = {part: c.corrected for part, c in counts.items()}
    if not any(v is not None for v in uncorrected.values()):
        raise findings.Absent("no memory controller counts errors (EDAC)")
    day = counters.within(node, counters.growth(node, corrected), counters.DAY_S)
    return Reading(
        uncorrected=counters.since_cleared(node, uncorrected), corrected_day=day, parts=len(uncorrected)
    )


def _paths(node: nodeview.NodeView) -> Iterator[str]:
    """The paths of every file that may be there; one that is missing is a count that could not be read."""
    for controller in (f"{edac.ROOT}/{name}" for name in node.names(edac.ROOT) if name.startswith("mc")):
        yield from (f"{controller}/{name}" for name in edac.OF_CONTROLLER)
        for place in (name for name in node.names(controller) if name.startswith(edac.PLACES)):
            yield from (f"{controller}/{place}/{name}" for name in edac.OF_PLACE)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for label, count in reading.uncorrected.items():
        if count > limits["uncorrected_max"]:
            text = f"{label}: {count} uncorrected memory errors"
            facts = findings.amount(count, limits["uncorrected_max"], "count")
            parts.append(findings.fail(text, device=label, **facts))
    for label, count in reading.corrected_day.items():
        if count > limits["corrected_day_warn"]:
            text = f"{label}: {count} corrected memory errors in 24 h"
            facts = findings.amount(count, limits["corrected_day_warn"], "per_day")
            parts.append(findings.warn(text, device=label, **facts))
    return findings.merge(parts, healthy=f"no uncorrected error on {reading.parts} DIMMs and controllers")


CHECK = registry.Check(
    proves="Main memory has had no error it could not correct, and no DIMM corrects errors all day.",
    component="memory",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    hard=True,
    fails="an uncorrected error since boot, or since a person cleared the check",
    warns="more corrected errors of one DIMM in 24 h than corrected_day_warn",
    needs="an EDAC driver for the memory controller",
    next_step="Replace the DIMM whose label is shown; several DIMMs of one channel point at the CPU socket.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "uncorrected_max", 0, "count", "uncorrected errors accepted", "NHC check_hw_mcelog: 0 in 24 h"
        ),
        registry.Threshold(
            "corrected_day_warn",
            10,
            "per_day",
            "corrected errors per DIMM in 24 h above which we warn",
            "mcelog.conf: 10 per 24 h (NHC check_hw_mcelog: 9)",
        ),
    ),
)
