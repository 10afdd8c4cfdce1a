"""The time at which a failure began: a watchdog ends a hung job long after the fault that hung it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from probing_cluster.attribution.verdict import findings
from probing_cluster.core import records, vocabulary

_TIMEOUT_FIELDS_MS = ("timeout_ms", "elapsed_ms", "ran_ms")
"""Where a finding tells how long the collective was waited for; the longest counts."""

_STALLS = frozenset({("probe", "rank_stall"), ("joblog", vocabulary.LOG_STALL)})
LEFT_HANGING_S = 7200.0
"""For so long at the most a job whose ranks had lost each other is thought to have stood before somebody ended it: a fault that came
and stayed within it is looked at."""
_LATEST_NS = 4_102_444_800 * 10**9
"""No collective is issued after the year 2099; a dump may hold any number."""
_LONGEST_S = 30 * 86400.0
"""Nobody waits longer: larger numbers come from a forged line or event."""


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
    findings_of_job = list(job_side)
    waited_s = max((collective_wait_s(f) for f in findings_of_job), default=0.0)
    earliest = attempt.end_at - timedelta(seconds=waited_s)
    issued = [
        t for f in findings_of_job for t in _still_outstanding(f) if attempt.start_at <= t <= attempt.end_at
    ]
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
    return min(max(numbers, default=0.0) / 1000.0, _LONGEST_S)


def unanswered_s(attempt: records.JobAttempt, job_side: Iterable[records.HealthEvent]) -> float:
    """Seconds for which a peer of the job may not have answered when the job, or its connection, was given up; when it went away nobody knows.

    A log that ends in a lost peer or a failed transport does not say since when: the ranks that wait are ended by a person or a limit.
    """
    found = [f for f in job_side if findings.is_finding(f)]
    waits = [f.detail.get("unanswered_ms") for f in found]
    given_s = max(
        (min(float(t) / 1000.0, _LONGEST_S) for t in waits if isinstance(t, int) and t > 0), default=0.0
    )
    left_hanging = attempt.state in vocabulary.ENDED_FROM_OUTSIDE and any(map(_felt_the_network, found))
    return max(given_s, LEFT_HANGING_S if left_hanging else 0.0)


def _felt_the_network(finding: records.HealthEvent) -> bool:
    """Whether what began the failure, by the log, is what a broken link or a lost peer looks like, and it does not tell of a time."""
    if finding.detail.get("first_cause") is not True or finding.source != "joblog":
        return False
    signature = findings.find(finding)
    lost = signature.role is findings.FindingRole.PROXIMAL and not signature.onset
    link = signature.role is findings.FindingRole.HINT and signature.cause == "ib_link"
    return lost or link


def _still_outstanding(finding: records.HealthEvent) -> Iterable[datetime]:
    """The times at which a rank issued the collectives that its dump shows as outstanding."""
    if finding.source != "dump" or finding.kind != "dump":
        return
    waiting = finding.detail.get("outstanding")
    for entry in waiting if isinstance(waiting, list) else ():
        created_ns = entry.get("created_ns") if isinstance(entry, dict) else None
        if isinstance(created_ns, int) and 0 < created_ns < _LATEST_NS:
            yield datetime.fromtimestamp(created_ns / 1e9, UTC)


def stalled_since(stall: records.HealthEvent) -> datetime:
    """When a rank, or a job's log, made its last progress before this finding that it stalled."""
    return stall.at - timedelta(seconds=min(max(stall.measured or 0.0, 0.0), _LONGEST_S))


def last_progress(attempt: records.JobAttempt, job_side: Iterable[records.HealthEvent]) -> datetime | None:
    """The last training step (or other sign of life) that the probe or the log's own times show; None when they show none.

    A stall says how long the rank, or the job's log, had made no progress when it was reported. The last step of a gang that was
    validating or writing a checkpoint at its end says nothing of when its trouble began.
    """
    assert attempt.start_at is not None
    assert attempt.end_at is not None
    job_side = list(job_side)
    probe_events = [e for e in job_side if e.source == "probe"]
    found = [stalled_since(e) for e in job_side if (e.source, e.kind) in _STALLS]
    last = [e for e in probe_events if e.kind == "last_progress"]
    if found or any(e.detail.get("phase") == "training" for e in last):
        found += [e.at for e in last]
    inside = [t for t in found if attempt.start_at <= t <= attempt.end_at]
    return max(inside, default=None)
