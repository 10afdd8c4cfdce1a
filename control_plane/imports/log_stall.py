"""That a job stood still until somebody ended it, or until it failed, as the times in its own log tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.evidence.joblog import grammar, standstill


def may_stand(
    last_lines: Sequence[bytes],
    steps: standstill.LogSteps,
    attempt: records.JobAttempt,
    found: Iterable[grammar.JobFinding],
) -> bool:
    """Whether reading the log's steps could give a finding, by its last lines and its errors: reading them costs as much as judging the lines."""
    errors = [f for f in found if f.role not in standstill.NO_ERROR]
    if not (attempt.start_at and attempt.end_at) or any(
        f.first_cause and f.domains == grammar.USER for f in errors
    ):
        return False
    if errors:
        return True
    return attempt.state in vocabulary.ENDED_FROM_OUTSIDE and steps.may_stand(
        reversed(last_lines), attempt.end_at
    )


def finding(
    steps: standstill.LogSteps,
    attempt: records.JobAttempt,
    found: Iterable[grammar.JobFinding],
    read_at: datetime,
) -> records.HealthEvent | None:
    """The finding, at the attempt's end or its first error, with the silence as its measured value; None where the log does not show one."""
    if not (attempt.start_at and attempt.end_at):
        return None
    stood = steps.standstill(attempt.start_at, attempt.end_at, found)
    if stood is None or (stood.error_at is None) is not (attempt.state in vocabulary.ENDED_FROM_OUTSIDE):
        return None
    over_at = stood.error_at or attempt.end_at
    return _event(
        attempt, read_at, over_at, (over_at - stood.last_at).total_seconds(), f"{stood.line}:{vocabulary.LOG_STALL}",
        kind=vocabulary.LOG_STALL, message=sanitize.without_secrets(sanitize.clean(stood.words, 1024)), detail=stood.detail,
    )  # fmt: skip


def progress(
    last_lines: Sequence[bytes],
    steps: standstill.LogSteps,
    attempt: records.JobAttempt,
    read_at: datetime,
) -> records.HealthEvent | None:
    """The finding that the log's steps go on until about the end; None where its last lines do not show that."""
    if not (attempt.start_at and attempt.end_at):
        return None
    steps.may_stand(reversed(last_lines), attempt.end_at)
    step = steps.last_step(attempt.start_at, attempt.end_at)
    if step is None:
        return None
    return _event(
        attempt, read_at, step.at, step.gap_s, vocabulary.LOG_PROGRESS,
        kind=vocabulary.LOG_PROGRESS, message=sanitize.without_secrets(sanitize.clean(f"progress until: {step.text}", 1024)), detail={},
    )  # fmt: skip


def by_file_time(
    last_line: str, attempt: records.JobAttempt, written_at: datetime, read_at: datetime
) -> records.HealthEvent | None:
    """The finding that the file was last written long before the limit; None if its time is not of the run, as that of most copies.

    Where Slurm wrote its last message into the file, that is its time, and nothing is known. How regularly the job wrote is not known either.
    """
    if not (attempt.start_at and attempt.end_at and last_line) or attempt.state not in _BY_LIMIT:
        return None
    silence = attempt.end_at - written_at
    if written_at < attempt.start_at or silence < _LEAST or silence < (attempt.end_at - attempt.start_at) / 4:
        return None
    line = sanitize.clean(last_line, 200)
    return _event(
        attempt, read_at, attempt.end_at, silence.total_seconds(), vocabulary.OUTPUT_STALL,
        kind=vocabulary.OUTPUT_STALL, message=f"nothing was written after: {line}", detail={"last_line": line},
    )  # fmt: skip


_BY_LIMIT = frozenset({"TIMEOUT", "DEADLINE"})
_LEAST = timedelta(minutes=3)


def _event(
    attempt: records.JobAttempt,
    read_at: datetime,
    at: datetime,
    measured_s: float,
    what: str,
    *,
    kind: str,
    message: str,
    detail: dict[str, Any],
) -> records.HealthEvent:
    node = next(iter(attempt.nodes), "")
    position = f"{attempt.job_id}:{attempt.submit_at.isoformat()}:{what}"
    return records.HealthEvent(
        event_id=records.make_event_id(attempt.cluster, node, "joblog", position),
        cluster=attempt.cluster,
        node=node,
        at=at,
        observed_at=read_at,
        kind=kind,
        severity=records.Severity.INFO,
        measured=measured_s,
        unit="s",
        job_id=attempt.job_id,
        source="joblog",
        message=message,
        detail=detail,
    )
