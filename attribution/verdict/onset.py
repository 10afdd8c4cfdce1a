"""The onset: when the failure began. A watchdog ends a hung job long after the fault that hung it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from probing_cluster.attribution.gang import snapshots
from probing_cluster.attribution.verdict import findings
from probing_cluster.core import digits, records, vocabulary

_TIMEOUT_FIELDS_MS = ("timeout_ms", "elapsed_ms", "ran_ms")
"""Keys of a finding's detail that hold the time a collective was waited for; the longest counts."""

_STALLS = frozenset({("probe", snapshots.STALL), ("joblog", vocabulary.LOG_STALL)})
LEFT_HANGING_S = 7200.0
"""Longest time for which ranks that had lost each other are taken to have hung before somebody ended the job."""
_LATEST_NS = 4_102_444_800 * 10**9
"""No collective is issued after the year 2099; a dump may hold any number."""
_LONGEST_S = 30 * 86400.0
"""Longest credible wait: larger numbers come from a forged line or event."""


def onset(
    attempt: records.JobAttempt,
    job_side: Iterable[records.HealthEvent],
    last_progress_at: datetime | None = None,
) -> datetime:
    """The earliest of: the end, the end minus the collective timeout, the issue time of an outstanding collective, the last progress.

    Never before the attempt's start.
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
    """Seconds for which a collective was waited for before this finding; 0 if it states none."""
    if not findings.is_finding(finding) or not findings.find(finding).onset:
        return 0.0
    waits = [digits.number(finding.detail.get(name)) or 0.0 for name in _TIMEOUT_FIELDS_MS]
    return min(max(waits) / 1000.0, _LONGEST_S)


def unanswered_s(attempt: records.JobAttempt, job_side: Iterable[records.HealthEvent]) -> float:
    """Seconds before the end during which a peer may not have answered; 0 if no finding suggests it.

    The log of a lost peer or a failed transport does not date the loss: a person or the limit ends the waiting ranks later.
    """
    found = [f for f in job_side if findings.is_finding(f)]
    waits = [digits.number(f.detail.get("unanswered_ms")) or 0.0 for f in found]
    given_s = min(max(waits, default=0.0) / 1000.0, _LONGEST_S)
    left_hanging = attempt.state in vocabulary.ENDED_FROM_OUTSIDE and any(map(_felt_the_network, found))
    return max(given_s, LEFT_HANGING_S if left_hanging else 0.0)


def _felt_the_network(finding: records.HealthEvent) -> bool:
    """True for a first cause in the log that looks like a broken link or a lost peer and states no waiting time."""
    if finding.detail.get("first_cause") is not True or finding.source != "joblog":
        return False
    signature = findings.find(finding)
    lost = signature.role is findings.FindingRole.PROXIMAL and not signature.onset
    link = signature.role is findings.FindingRole.HINT and signature.cause == "ib_link"
    return lost or link


def _still_outstanding(finding: records.HealthEvent) -> Iterable[datetime]:
    """Issue times of the collectives that a rank's dump shows as outstanding."""
    if finding.source != "dump" or finding.kind != "dump":
        return
    waiting = finding.detail.get("outstanding")
    for entry in waiting if isinstance(waiting, list) else ():
        created_ns = entry.get("created_ns") if isinstance(entry, dict) else None
        if isinstance(created_ns, int) and 0 < created_ns < _LATEST_NS:
            yield datetime.fromtimestamp(created_ns / 1e9, UTC)


def stalled_since(stall: records.HealthEvent) -> datetime:
    """Time of the last progress before the stall, of a rank or a job's log."""
    return stall.at - timedelta(seconds=min(max(stall.measured or 0.0, 0.0), _LONGEST_S))


def log_stall(
    job_side: Iterable[records.HealthEvent], last_progress_at: datetime | None = None
) -> records.HealthEvent | None:
    """The finding that the log stood still until the end; None without one, or if the probe saw a later step."""
    return _latest((e for e in job_side if e.kind == vocabulary.LOG_STALL), last_progress_at)


def output_stall(
    job_side: Iterable[records.HealthEvent], last_progress_at: datetime | None = None
) -> records.HealthEvent | None:
    """The finding that nothing was written to the output until the end.

    None without one, if the log's own times date a standstill (LOG_STALL), or if the probe saw progress after that instant.
    """
    found = list(job_side)
    if any(e.kind == vocabulary.LOG_STALL for e in found):
        return None
    return _latest((e for e in found if e.kind == vocabulary.OUTPUT_STALL), last_progress_at)


_NEAR_THE_END = 3
"""Lines that may follow the last error: of Slurm's end, and what a buffer still held."""


def last_error(job_side: Iterable[records.HealthEvent]) -> records.HealthEvent | None:
    """The program's error with which its output ends, above Slurm's line about the end, or a step that waited to begin until then.

    None without one, or if the program went on.
    """
    found = list(job_side)
    ends = [n for e in found if e.detail.get("role") == "end" and (n := digits.index(e.detail.get("line")))]
    for error in found:
        detail = error.detail
        line, behind = digits.index(detail.get("line")), digits.index(detail.get("behind"))
        if error.source != "joblog" or detail.get("first_cause") is not True:
            continue
        if is_waiting_step(error):
            return error
        if detail.get("role") != "root" or findings.find(error).role is not findings.FindingRole.OWN:
            continue
        went_on = detail.get("survived") or detail.get("handled") or (behind or 0) > _NEAR_THE_END
        if not went_on and not any(n < (line or 0) for n in ends):
            return error
    return None


def is_waiting_step(error: records.HealthEvent) -> bool:
    """True for srun's line about a step that waited to begin until the job's end."""
    return error.kind == "slurm_launch_failed" and error.detail.get("role") == "symptom"


def _latest(
    stalls: Iterable[records.HealthEvent], last_progress_at: datetime | None
) -> records.HealthEvent | None:
    latest = max(sorted(stalls, key=lambda e: e.event_id), key=stalled_since, default=None)
    went_on = latest is not None and last_progress_at is not None and last_progress_at > stalled_since(latest)
    return None if went_on else latest


_FEW_GAPS, _LEAST_WORK = 3, timedelta(seconds=10)
"""A program's own output runs no further ahead of its GPU; the nodes' clocks differ by less."""


def worked_after(job_side: Iterable[records.HealthEvent]) -> datetime | None:
    """The latest instant after which dated steps of the job's log show that it went on working; None if no log shows that."""
    shown = [e for e in job_side if e.kind == vocabulary.LOG_PROGRESS and e.source == "joblog"]
    gaps_s = (min(max(e.measured or 0.0, 0.0), _LONGEST_S) for e in shown)
    work = (max(_LEAST_WORK, _FEW_GAPS * timedelta(seconds=gap_s)) for gap_s in gaps_s)
    return max((e.at - ran for e, ran in zip(shown, work, strict=True)), default=None)


def last_progress(attempt: records.JobAttempt, job_side: Iterable[records.HealthEvent]) -> datetime | None:
    """Time of the last training step or other progress, from the probe or the log's times; None if unknown.

    A stall states how long there had been no progress when it was reported; one that ended counts no more. A gang that
    validated or wrote a checkpoint at its end is no stall, so its last step does not count.
    """
    start_at, end_at = attempt.start_at, attempt.end_at
    assert start_at is not None
    assert end_at is not None
    job_side = list(job_side)
    probe_events = [e for e in job_side if e.source == "probe"]
    reported = [e for e in job_side if (e.source, e.kind) in _STALLS]
    lasting = lasting_stalls(probe_events, end_at)
    found = [stalled_since(e) for e in (*lasting, *(e for e in reported if e.source != "probe"))]
    last = [e for e in probe_events if e.kind == snapshots.LAST_STEP]
    if reported or any(e.detail.get("phase") == "training" for e in last):
        stood = {snapshots.process_of(e) for e in reported if e.source == "probe"}
        stand = {snapshots.process_of(e) for e in lasting}
        found += [min(e.at, end_at) for e in last if _is_progress(e, stood, stand, end_at)]
    inside = [t for t in found if start_at <= t <= end_at]
    return max(inside, default=None)


def lasting_stalls(
    probe_events: Sequence[records.HealthEvent], end_at: datetime
) -> list[records.HealthEvent]:
    """The stalls after whose report the probe saw no progress of the same process."""
    stalls = [e for e in probe_events if e.kind == snapshots.STALL]
    over = snapshots.went_on_after(probe_events, end_at) if stalls else {}
    return [e for e in stalls if (at := over.get(snapshots.process_of(e))) is None or e.at > at]


def _is_progress(
    step: records.HealthEvent,
    stood: Collection[snapshots.Process],
    stand: Collection[snapshots.Process],
    end_at: datetime,
) -> bool:
    """True for a last step, other than of a process that Slurm woke to end it, or of a later start.

    Slurm's end is the second in which it began to end the tasks: a process whose stall is over may step on until it is killed.
    """
    process = snapshots.process_of(step)
    if step.at <= end_at:
        return process not in stand or step.at < end_at - snapshots.TEARDOWN
    return process in stood and process not in stand and step.at <= end_at + snapshots.WOKEN


_CALLS_WAIT = frozenset({("mount", "hanging"), ("check", "mount_responsive"), ("lustre", "connection_lost")})
"""Sorts (kind, code) of mounts that fail no call: whoever uses one waits."""


BRIEF = timedelta(minutes=2)
"""A shorter silence of such a mount ends no job: reads and writes wait."""


def makes_calls_wait(event: records.HealthEvent) -> bool:
    """True for a mount or server that fails no call: whoever uses it waits."""
    return (event.kind, event.code) in _CALLS_WAIT or "still trying" in event.message


_QUESTION = re.compile(
    r"[\[(]\s?(?:y(?:es)?\s?[/|]\s?no?|no?\s?[/|]\s?y(?:es)?)\s?[\])]\W{0,3}$|\b(?:password|passphrase)\b[^:]{0,60}:\s{0,3}$|\bpress (?:enter|return|any key)\b",
    re.IGNORECASE,
)
"""`Overwrite existing checkpoint? [y/N]`, `Password for alice:`."""


def asks(stall: records.HealthEvent | None) -> bool:
    """True if the last line of an output that stood still is a question for an answer at a terminal."""
    line = stall.detail.get("last_line") if stall is not None else None
    return isinstance(line, str) and _QUESTION.search(line) is not None
