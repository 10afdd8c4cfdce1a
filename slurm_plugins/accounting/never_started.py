"""Jobs that ended before they began, as events: there is no attempt of them, and their report says why."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from probing_cluster.core import clock, records, storable, vocabulary
from probing_cluster.slurm_plugins import job_ids
from probing_cluster.slurm_plugins.accounting import attempt_rows


def events(jobs: Iterable[attempt_rows.NotStarted], read_at: datetime) -> list[records.HealthEvent]:
    """One event for each job that is over, of no node; a job that still waits has none."""
    made = [
        _event(job, read_at, at)
        for job in jobs
        # Of the rest of an array that was cancelled, accounting may give no end.
        if job.state not in attempt_rows.WAITING and (at := job.end_at or job.submit_at)
    ]
    return [event for event in made if storable.why_not(event) is None]


def _event(job: attempt_rows.NotStarted, read_at: datetime, at: datetime) -> records.HealthEvent:
    submitted = clock.iso_z(job.submit_at) if job.submit_at else ""
    position = f"{vocabulary.NEVER_STARTED}:{job.job_id}:{submitted}:{clock.iso_z(at)}"
    by = f" by {job.cancelled_by}" if job.cancelled_by else ""
    return records.HealthEvent(
        # The poll of accounting sees a row many times, and an import may bring it once more.
        event_id=records.make_event_id(job.cluster, "", vocabulary.ACCOUNTING, position),
        cluster=job.cluster,
        node="",
        at=at,
        observed_at=read_at,
        kind=vocabulary.NEVER_STARTED,
        severity=records.Severity.INFO,
        job_id=job_ids.parse(job.job_id).job,
        source=vocabulary.ACCOUNTING,
        message=f"job {job.job_id} never started: {job.state}{by}",
        detail={
            "job": job.job_id,
            "raw_id": job.raw_id,
            "state": job.state,
            "cancelled_by": job.cancelled_by,
            "user": job.user,
            "account": job.account,
            "reason": job.reason,
            **({} if job.end_at else {"end_known": False}),
        },
    )
