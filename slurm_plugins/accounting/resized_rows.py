"""Rows of accounting that are parts of a resized job's attempt: closed as RESIZING, and opened anew under another submit time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from probing_cluster.core import records


def parts(
    found: Iterable[records.JobAttempt], stored: Iterable[records.JobAttempt]
) -> dict[tuple[int, datetime], bool]:
    """Job id and submit time of each row that began while a stored attempt of its job ran; true if that attempt holds all of the row.

    A poll lists the second row of a resized job without the first, which has left its window. No job runs twice at once, so the
    row is a part of the attempt that began before, or that attempt's end has not been read yet: only the job's whole history
    decides.
    """
    listed = {(a.cluster, a.job_id, a.submit_at): a for a in found}
    of_job: dict[tuple[str, int, str], list[records.JobAttempt]] = {}
    for attempt in stored:
        newest = listed.get((attempt.cluster, attempt.job_id, attempt.submit_at), attempt)
        of_job.setdefault((newest.cluster, newest.job_id, newest.user), []).append(newest)
    made: dict[tuple[int, datetime], bool] = {}
    for row in listed.values():
        of_same = of_job.get((row.cluster, row.job_id, row.user), ())
        before = max(
            (a for a in of_same if a.submit_at < row.submit_at), key=lambda a: a.submit_at, default=None
        )
        if before is not None and _goes_on(before, row):
            same = (before.state, before.end_at) == (row.state, row.end_at)
            made[row.job_id, row.submit_at] = same and set(row.nodes) <= set(before.nodes)
    return made


def _goes_on(first: records.JobAttempt, row: records.JobAttempt) -> bool:
    """True if the attempt ran, by its record, when the row began, or was closed to be resized."""
    if first.start_at is None or row.start_at is None:
        return False
    return first.end_at is None or first.end_at > row.start_at or first.state == "RESIZING"
