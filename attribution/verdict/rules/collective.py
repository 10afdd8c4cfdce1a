"""Collectives that never finished: the missing rank if one is named, else unknown."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings
from probing_cluster.core import digits, records

SIGHTED: frozenset[str] = frozenset()


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """A named missing rank is a claim against its program; a bare timeout is unknown."""
    for claim in claims.hints(view, "missing_rank", "collective", findings.FindingRole.HINT):
        named = _named_by_torch(claim.evidence[0])
        yield claims.replace_claim(claim, words=named) if named else claim
    yield from claims.hints(view, "unknown", "collective", findings.FindingRole.PROXIMAL)


_MOST_RANKS = 8


def _named_by_torch(report: records.HealthEvent) -> str:
    """Phrase with the ranks that PyTorch itself reports as missing; empty for another event."""
    listed = report.detail.get("ranks")
    if report.kind not in findings.NAMES_MISSING or not isinstance(listed, list):
        return ""
    ranks = [rank for r in listed if (rank := digits.index(r)) is not None]
    if not ranks:
        return ""
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    number = digits.index(report.detail.get("seq"))
    which = f"collective #{number}" if number is not None else "the collective"
    names = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_MOST_RANKS]))}{more}"
    if report.kind == "monitored_barrier_timeout":
        return f"PyTorch says that {names} did not reach its monitored barrier in time"
    if report.kind != "desync_report":
        if report.detail.get("by_count") is True:
            return (
                f"{names} had not entered {which}, by PyTorch's own count, while others waited for it in vain"
            )
        return f"the watchdogs of all other ranks timed out on {which}, and {names} had no such timeout"
    return f"PyTorch's report says that {names} did not join {which}"
