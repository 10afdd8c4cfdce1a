"""That a job stood still until somebody ended it, or until it failed, as the times in its own log tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

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
    node = next(iter(attempt.nodes), "")
    position = f"{attempt.job_id}:{attempt.submit_at.isoformat()}:{stood.line}:{vocabulary.LOG_STALL}"
    return records.HealthEvent(
        event_id=records.make_event_id(attempt.cluster, node, "joblog", position),
        cluster=attempt.cluster,
        node=node,
        at=over_at,
        observed_at=read_at,
        kind=vocabulary.LOG_STALL,
        severity=records.Severity.INFO,
        measured=(over_at - stood.last_at).total_seconds(),
        unit="s",
        job_id=attempt.job_id,
        source="joblog",
        message=sanitize.clean(stood.words, 1024),
        detail=stood.detail,
    )
