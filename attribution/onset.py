"""When the trouble began: a watchdog ends a hung job long after the fault that hung it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.attribution import findings
from probing_cluster.core import records

_TIMEOUT_FIELDS_MS = ("timeout_ms", "elapsed_ms", "ran_ms")
"""Where a finding tells how long the collective was waited for; the longest counts."""


def onset(
    attempt: records.JobAttempt,
    job_side: Iterable[records.HealthEvent],
    last_progress_at: datetime | None = None,
) -> datetime:
    """The earliest of the end, the end minus the collective timeout seen, and the last progress seen.

    Never before the attempt's start: what is older did not begin in it.
    """
    assert attempt.end_at is not None
    assert attempt.start_at is not None
    waited_s = max((collective_wait_s(f) for f in job_side), default=0.0)
    earliest = attempt.end_at - timedelta(seconds=waited_s)
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
