"""When the trouble began: a watchdog ends a hung job long after the fault that hung it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from probing_cluster.attribution import findings
from probing_cluster.core import records

_TIMEOUT_FIELDS_MS = ("timeout_ms", "elapsed_ms", "ran_ms")
"""Where a finding tells how long the collective was waited for; the longest counts."""

_LATEST_NS = 4_102_444_800 * 10**9
"""Nothing is issued after the year 2099; a dump may hold any number."""


def onset(
    attempt: records.JobAttempt,
    job_side: Iterable[records.HealthEvent],
    last_progress_at: datetime | None = None,
) -> datetime:
    """The earliest of the end, the end minus the collective timeout seen, what dumps show outstanding, and the last progress.

    Never before the attempt's start: what is older did not begin in it.
    """
    assert attempt.end_at is not None
    assert attempt.start_at is not None
    told = list(job_side)
    waited_s = max((collective_wait_s(f) for f in told), default=0.0)
    earliest = attempt.end_at - timedelta(seconds=waited_s)
    issued = [t for f in told for t in _still_outstanding(f) if attempt.start_at <= t <= attempt.end_at]
    earliest = min([earliest, *issued])
    if last_progress_at is not None:
        earliest = min(earliest, last_progress_at)
    return max(earliest, min(attempt.start_at, attempt.end_at))


def collective_wait_s(finding: records.HealthEvent) -> float:
    """Seconds a collective was waited for before this finding; 0 when it says nothing of the kind."""
    if not findings.is_finding(finding) or not findings.find(finding).onset:
        return 0.0
    waits = [finding.detail.get(name) for name in _TIMEOUT_FIELDS_MS]
    numbers = [float(w) for w in waits if isinstance(w, (int, float)) and not isinstance(w, bool) and w > 0]
    return max(numbers, default=0.0) / 1000.0


def _still_outstanding(finding: records.HealthEvent) -> Iterable[datetime]:
    """When the collectives a rank's dump shows as outstanding were issued."""
    if finding.source != "dump" or finding.kind != "dump":
        return
    waiting = finding.detail.get("outstanding")
    for entry in waiting if isinstance(waiting, list) else ():
        created_ns = entry.get("created_ns") if isinstance(entry, dict) else None
        if isinstance(created_ns, int) and 0 < created_ns < _LATEST_NS:
            yield datetime.fromtimestamp(created_ns / 1e9, UTC)
