"""What a job's pages say of its training: first step, checkpoints, last step; a few events per attempt.

They are what the account of a run's time is measured by, and what the onset of a failure goes back to.
A gang says them once: the first and last step once per node, checkpoints by rank 0 alone. All of it is
source `probe`, the user's word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from probing_cluster.core import records
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks import pages

CHECKPOINT_EVERY_S = 30.0
"""A checkpoint is reported at most this often; those between are in the total of the next one."""


@dataclass(frozen=True, kw_only=True)
class ProgressMoment:
    """One instant on both clocks: the pages' times are monotonic."""

    now: datetime
    monotonic_s: float

    def at(self, ns: int, job: jobs.NodeJob) -> datetime:
        """The time of a page's instant, never outside the job's life so far: the job writes the page and may write any number."""
        instant = self.now - timedelta(seconds=max(0.0, self.monotonic_s - ns / 1e9))
        return min(max(instant, job.started_at), self.now)


@dataclass(kw_only=True)
class ReportedProgress:
    """What has been reported of one attempt on this node."""

    first_step: bool = False
    checkpoints: int = 0
    checkpoint_s: float = float("-inf")
    """When the last checkpoint was reported, by the monotonic clock."""


def news(
    job: jobs.NodeJob,
    probe_pages: Iterable[pages.ProbePage],
    reported: ReportedProgress,
    when: ProgressMoment,
    *,
    last: bool = False,
) -> list[Sighting]:
    """The sightings that `reported` does not hold yet; they are noted there. With `last`, the attempt's last step too."""
    trained = [p for p in probe_pages if p.steps > 0]
    found: list[Sighting] = []
    began = min((p for p in trained if p.first_step_ns), key=lambda p: p.first_step_ns or 0, default=None)
    if began is not None and not reported.first_step:
        reported.first_step = True
        assert began.first_step_ns is not None
        at = when.at(began.first_step_ns, job)
        found.append(
            _sighting(job, began, "first_step", "first", at, f"rank {_name(began)} made its first step")
        )
    for page in trained:
        found += _checkpoint(job, page, reported, when, last=last)
    latest = max((p for p in trained if p.step_ns), key=lambda p: p.step_ns or 0, default=None)
    if last and latest is not None:
        assert latest.step_ns is not None
        words = f"rank {_name(latest)} made its last step, number {latest.steps}"
        found.append(
            _sighting(
                job, latest, "last_progress", f"last:{latest.steps}", when.at(latest.step_ns, job), words,
                steps=latest.steps, phase=latest.phase,
            )
        )  # fmt: skip
    return found


def _checkpoint(
    job: jobs.NodeJob, page: pages.ProbePage, reported: ReportedProgress, when: ProgressMoment, *, last: bool
) -> list[Sighting]:
    begin, end = page.checkpoint_begin_ns, page.checkpoint_end_ns
    if page.rank not in (0, None) or begin is None or end is None or begin > end:
        return []  # another rank reports checkpoints, or one is being written now: it counts when it is whole
    if page.first_step_ns is None or end < page.first_step_ns or page.checkpoints <= reported.checkpoints:
        return []
    if not last and when.monotonic_s - reported.checkpoint_s < CHECKPOINT_EVERY_S:
        return []
    reported.checkpoints, reported.checkpoint_s = page.checkpoints, when.monotonic_s
    duration_s = (end - begin) / 1e9
    return [
        _sighting(
            job, page, "checkpoint", f"checkpoint:{page.checkpoints}", when.at(begin, job),
            f"checkpoint {page.checkpoints} after step {page.steps} took {duration_s:.3f} s",
            duration_s=round(duration_s, 6), total_s=round(page.checkpoint_total_ns / 1e9, 6),
            number=page.checkpoints, steps=page.steps,
        )
    ]  # fmt: skip


def _sighting(
    job: jobs.NodeJob,
    page: pages.ProbePage,
    kind: str,
    position: str,
    at: datetime,
    words: str,
    **detail: object,
) -> Sighting:
    process = f"{page.pid}:{page.start_ticks}"
    return Sighting(
        source="probe",
        position=f"{job.job_id}:{job.restart_count}:{process}:{position}",
        at=at,
        kind=kind,
        severity=records.Severity.INFO,
        message=words,
        job_id=job.job_id,
        pid=page.pid,
        detail={"restart_count": job.restart_count, "rank": page.rank, "process": process, **detail},
    )


def _name(page: pages.ProbePage) -> str:
    return "?" if page.rank is None else str(page.rank)
