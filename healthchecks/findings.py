"""What a check says: one finding, merged from the findings about its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probing_cluster.core import errors, records, vocabulary

MAX_LISTED = 64
"""Devices listed in one result; a node with more broken parts is one fact, not a thousand."""

_RANK = {
    records.Outcome.FAIL: 4,
    records.Outcome.ERROR: 3,
    records.Outcome.WARN: 2,
    records.Outcome.OK: 1,
    records.Outcome.ABSENT: 0,
}
_SEVERITY_RANK = {records.Severity.HIGH: 2, records.Severity.LOW: 1, records.Severity.INFO: 0}


class Absent(errors.ProbingError):
    """The hardware or software this check is about is not on this node."""


class Undetermined(errors.ProbingError):
    """The check could not see what it has to judge."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found, as a whole or about one device.

    `severity` lowers the check's own for this finding (a pending row remap is not a failed
    one); None keeps it. It never raises it: the site's word is the ceiling.
    """

    outcome: records.Outcome
    message: str
    device: str | None = None
    measured: float | None = None
    threshold: float | None = None
    unit: str | None = None
    severity: records.Severity | None = None
    timed_out: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)


def ok(message: str, **more: Any) -> Finding:
    """The part was seen and is as it should be."""
    return Finding(outcome=records.Outcome.OK, message=message, **more)


def warn(message: str, **more: Any) -> Finding:
    """Worth a look; nothing is done to the node."""
    return Finding(outcome=records.Outcome.WARN, message=message, **more)


def fail(message: str, **more: Any) -> Finding:
    """The node should not get the next job."""
    return Finding(outcome=records.Outcome.FAIL, message=message, **more)


def unseen(message: str, **more: Any) -> Finding:
    """The part is there and could not be read: neither health nor a fault."""
    return Finding(outcome=records.Outcome.ERROR, message=message, **more)


def absent(message: str, **more: Any) -> Finding:
    """There is nothing here to judge."""
    return Finding(outcome=records.Outcome.ABSENT, message=message, **more)


def least(a: records.Severity, b: records.Severity) -> records.Severity:
    """The milder of two severities."""
    return a if _SEVERITY_RANK[a] <= _SEVERITY_RANK[b] else b


def merge(parts: Sequence[Finding], *, healthy: str, detail: Mapping[str, Any] | None = None) -> Finding:
    """The worst of `parts` speaks for the check and the others are listed; `healthy` when all are ok.

    `parts` is in device order; ties go to the first. Nothing at all to judge is absent.
    """
    facts = dict(detail or {})
    if not parts:
        return absent(healthy, detail=facts)
    bad = [p for p in parts if p.outcome not in (records.Outcome.OK, records.Outcome.ABSENT)]
    if not bad:
        if all(p.outcome is records.Outcome.ABSENT for p in parts):
            return absent(parts[0].message, detail=facts)
        return ok(healthy, detail=facts)
    worst = max(bad, key=_badness)
    others = [p for p in bad if p is not worst]
    facts |= worst.detail
    facts["findings"] = [_row(p) for p in [worst, *others][:MAX_LISTED]]
    facts["findings_total"] = len(bad)
    return Finding(
        outcome=worst.outcome,
        message=worst.message + _also(others),
        device=worst.device,
        measured=worst.measured,
        threshold=worst.threshold,
        unit=worst.unit,
        severity=worst.severity,
        timed_out=any(p.timed_out for p in bad),
        detail=facts,
    )


def amount(measured: float, threshold: float | None, unit: str) -> dict[str, Any]:
    """The measured value and its limit as fields of a finding."""
    return {
        "measured": float(measured),
        "threshold": None if threshold is None else float(threshold),
        "unit": unit,
    }


def too_few(there: int, wanted: int | None, what: str) -> list[Finding]:
    """`3 of 4 arrays` as a failure where fewer are there than `wanted`; nothing where no number is."""
    if wanted is None or there >= wanted:
        return []
    return [fail(f"{there} of {wanted} {what}", **amount(there, wanted, "count"))]


plural = vocabulary.plural
"""`1 port`, `8 ports`."""


def _badness(part: Finding) -> tuple[int, int]:
    return _RANK[part.outcome], 3 if part.severity is None else _SEVERITY_RANK[part.severity]


def _also(others: Sequence[Finding]) -> str:
    if not others:
        return ""
    names = list(dict.fromkeys(p.device or "the node" for p in others))
    shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    return f" (and {len(others)} more: {shown})"


def _row(part: Finding) -> dict[str, Any]:
    row: dict[str, Any] = {"outcome": part.outcome.value, "device": part.device, "message": part.message}
    if part.severity is not None:
        row["severity"] = part.severity.value
    if part.measured is not None:
        row |= {"measured": part.measured, "threshold": part.threshold, "unit": part.unit}
    return row | dict(part.detail)
