"""Rows of accounting that slurmdbd wrote over: a job that was requeued starts again in the row of its start before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime

from probing_cluster.core import records


def apart(
    found: Iterable[records.JobAttempt], stored: Iterable[records.JobAttempt]
) -> list[records.JobAttempt]:
    """`found`, with a submit time of its own for each start in the row of a stored, requeued one: that of the requeue.

    Slurm 22.05 may keep the submit time, by which a start is known; the new start would take the place of the one that
    ended, and of its verdict.
    """
    starts: dict[tuple[str, int, str], list[records.JobAttempt]] = {}
    for attempt in stored:
        starts.setdefault((attempt.cluster, attempt.job_id, attempt.user), []).append(attempt)
    return [_own(row, starts.get((row.cluster, row.job_id, row.user), ())) for row in found]


def _own(row: records.JobAttempt, known: Iterable[records.JobAttempt]) -> records.JobAttempt:
    known = list(known)
    first = next((a for a in known if a.submit_at == row.submit_at), None)
    if first is None or row.start_at is None or _requeued_at(first) is None or first.start_at == row.start_at:
        return row
    same = next((a.submit_at for a in known if a.start_at == row.start_at), None)
    before = [at for a in known if (at := _requeued_at(a)) is not None and at <= row.start_at]
    submit_at = same or max(before, default=row.submit_at)
    return row if submit_at == row.submit_at else dataclasses.replace(row, submit_at=submit_at)


def _requeued_at(attempt: records.JobAttempt) -> datetime | None:
    """The end of a start that was requeued; None for others."""
    return attempt.end_at if attempt.state == "REQUEUED" else None
