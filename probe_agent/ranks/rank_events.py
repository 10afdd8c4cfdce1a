"""The events of a job's ranks, in words and figures: source `probe`, the user's word, never a reason to touch a node."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, records, sanitize
from probing_cluster.evidence import nccl_ras as ras
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks import pages, stall
from probing_cluster.probe_agent.ranks.ras import nccl_ras


class RankEvents:
    """What one agent tells of ranks."""

    def __init__(self, identity: identity.Identity, clock: clock.Clock) -> None:
        self._identity = identity
        self._clock = clock

    def dead(self, job: jobs.NodeJob, page: pages.ProbePage, at: datetime, *, together: bool) -> Sighting:
        """The process of a page ended out of order; `together` with all the job's ranks here."""
        detail = {
            "rank": page.rank,
            "steps": page.steps,
            "phase": page.phase,
            "step_id": page.step_id,
            "world_size": page.world_size,
            "together": together,
        }
        words = f"{_rank_label(page)} is gone {_how_far(page)}"
        words += ", with all ranks of its job on this node" if together else ""
        return self._sighting(job, "rank_dead", f"{_process(page)}:dead", words, detail, pid=page.pid, at=at)

    def stall(self, job: jobs.NodeJob, found: stall.Stall) -> Sighting:
        """A rank has stopped."""
        page = found.page
        return self._sighting(
            job,
            "rank_stall",
            f"{_process(page)}:stall:{page.steps}:{page.phase_since_ns}",
            f"{_rank_label(page)} has not got on for {found.stalled_s:.0f} s in phase {page.phase} "
            f"(its own history allows {found.bound_s:.0f} s)",
            {"rank": page.rank, "steps": page.steps, "phase": page.phase, "bound_s": round(found.bound_s, 3)},
            pid=page.pid,
            measured=round(found.stalled_s, 3),
            threshold=round(found.bound_s, 3),
        )

    def snapshot(self, job: jobs.NodeJob, taken: str, detail: Mapping[str, Any]) -> Sighting:
        """What all ranks of the job on this node were doing; `taken` tells the snapshots of a start apart, whichever agent took them."""
        words = f"{len(detail['ranks'])} ranks of job {job.job_id} on {self._identity.node}"
        return self._sighting(job, "rank_snapshot", f"{_start(job)}:snapshot:{taken}", words, detail)

    def ras(self, job: jobs.NodeJob, taken: str, status: ras.RasStatus) -> Sighting:
        """What NCCL RAS says of the job at this snapshot."""
        position = f"{_start(job)}:ras:{taken}"
        return self._sighting(job, "nccl_ras", position, nccl_ras.words(status), nccl_ras.detail(status))

    def _sighting(
        self,
        job: jobs.NodeJob,
        kind: str,
        position: str,
        message: str,
        detail: Mapping[str, Any],
        *,
        pid: int | None = None,
        measured: float | None = None,
        threshold: float | None = None,
        at: datetime | None = None,
    ) -> Sighting:
        return Sighting(
            source="probe",
            position=f"{self._identity.boot_id()}:{job.job_id}:{position}",
            at=at or self._clock.now(),
            kind=kind,
            severity=records.Severity.INFO,
            message=sanitize.clean(message),
            job_id=job.job_id,
            pid=pid,
            measured=measured,
            threshold=threshold,
            unit="s" if measured is not None else None,
            detail={"restart_count": job.restart_count, **detail},
        )


def _start(job: jobs.NodeJob) -> str:
    return f"{job.restart_count}:{job.started_at.timestamp():.3f}"


def _process(page: pages.ProbePage) -> str:
    return f"{page.pid}:{page.start_ticks}"


def _rank_label(page: pages.ProbePage) -> str:
    return f"rank {'?' if page.rank is None else page.rank} (pid {page.pid})"


def _how_far(page: pages.ProbePage) -> str:
    """Its last step, or collective: a program without an optimizer makes no steps and seems to load for ever."""
    calls = page.recent_collectives
    if page.steps or not calls:
        return f"after step {page.steps} in phase {page.phase}"
    return f"{'after' if calls[-1].leave_ns is not None else 'inside'} {calls[-1].op} {calls[-1].group}#{calls[-1].seq}, without a step of an optimizer"
