"""What the agent answers to Prolog, Epilog, HealthCheckProgram and people: from its state, in milliseconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from probing_cluster.core import clock, errors, records, vocabulary
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults import faults, gres_conf
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.hooks import fitness, requeue
from probing_cluster.probe_agent.jobs import jobs, page_directories
from probing_cluster.probe_agent.spool import intake

RECHECK_S = 0.5
"""Longest a Prolog waits for stale readings to be taken again."""

_log = logging.getLogger(__name__)


class AgentOperations(Protocol):
    """What answering needs of the rest of the agent."""

    async def keep_log(self, job: jobs.NodeJob, most_bytes: int) -> None:
        """Copy the output of a job that has ended beside it, as its owner."""
        ...

    async def recheck(self, *, clear: bool = False, relearn: bool = False) -> int:
        """Read every source now; how many latched faults an operator's word cleared."""
        ...

    def collect_from(self, job: jobs.NodeJob) -> None:
        """Queue the collection of what a job left."""
        ...

    async def began(self, job: jobs.NodeJob, *, missed: bool = False) -> None:
        """A job has begun here; `missed`: a while ago, so that its output files are its own by now."""
        ...

    def start_sweep(self) -> bool:
        """Start a check sweep in the background; False when one runs already."""
        ...

    def status(self) -> dict[str, Any]:
        """The agent's state, for people."""
        ...


class Answers:
    """Answers one request at a time; every operation is one method named `_<op>`."""

    def __init__(
        self,
        *,
        identity: identity.Identity,
        intake: intake.Intake,
        book: jobs.JobBook,
        pages: page_directories.PageDirectories,
        faults: faults.Faults,
        permissions: fitness.Permissions,
        outside: AgentOperations,
        requeues: requeue.Requeues,
        numbering: Callable[[], gres_conf.GpuNumbering | None] = lambda: None,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._identity = identity
        self._intake = intake
        self._book = book
        self._pages = pages
        self._faults = faults
        self._permissions = permissions
        self._outside = outside
        self._requeues = requeues
        self._numbering = numbering
        self._clock = clock
        self._ops: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "prolog": self._prolog,
            "epilog": self._epilog,
            "healthcheck": self._healthcheck,
            "status": self._status,
            "recheck": self._recheck,
        }

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request; raises UsageError for an operation we do not have."""
        op = request.get("op")
        work = self._ops.get(op) if isinstance(op, str) else None
        if work is None:
            raise errors.UsageError(f"unknown op {op!r}; known: {', '.join(sorted(self._ops))}")
        return {"v": 1, "ok": True, **await work(request)}

    async def missed(self, request: Mapping[str, Any], at: datetime) -> None:
        """What a hook asked or would have asked at `at`, and had no answer to; raises MalformedInput, or UsageError for another hook's.

        A job that began then is past being refused. Hooks are answered before the notes are read: of a job that one of them spoke of
        since, a note tells what happened before that, and changes nothing of what the job is now.
        """
        job, op = replace(self._job(request), started_at=at), request.get("op")
        if op not in ("prolog", "epilog"):
            raise errors.UsageError(f"no note of op {op!r} is kept")
        if self._book.includes(op, job):
            return
        if self._book.updated_after(job.job_id, at):
            job = job if op == "prolog" else replace(job, released_at=at)
        elif op == "prolog":
            job = self._book.start(job)
            await self._outside.began(job, missed=True)
        else:
            job = self._book.end(job, at)
            self._outside.collect_from(job)
        self._intake.store([job.item(self._identity)], self._book.changed_states())

    async def _prolog(self, request: Mapping[str, Any]) -> dict[str, Any]:
        job = self._job(request)
        refused = await self._refusal(job)
        # Slurm would cancel such a job, and its owner would never learn of the node.
        again = await asyncio.to_thread(self._requeues, job.job_id) if refused is not None else None
        spared = refused is not None and again is None
        if refused is not None and again is not None:
            reason = f"{refused.fault.kind} {refused.fault.code or ''} on {refused.fault.device}: {refused.fault.message}"
            self._intake.take([self._refusal_sighting(job, refused, again)])
            return {"fit": False, "reason": " ".join(reason.split())[:300]}
        job = self._book.start(job)
        self._intake.store([job.item(self._identity)], self._book.changed_states())
        await self._outside.began(job)
        answer: dict[str, Any] = {"fit": True, "reason": "", "gpu_uuids": job.gpu_uuids}
        known = fitness.suspects(job, self._faults, self._intake.inventory)
        if known:
            why = "Slurm would cancel the job" if spared else "no refusal is permitted now"
            answer["reason"] = f"{known[0].key} stands, but {why}"
        return answer | self._page_directory(job)

    async def _refusal(self, job: jobs.NodeJob) -> fitness.Refusal | None:
        """The refusal of a job, if any. Sources are read again only when a permission is held for a fault of this job."""
        now = self._clock.now()
        found = fitness.suspects(job, self._faults, self._intake.inventory)
        allowed = [f for f in found if self._permissions.for_fault(f, now)]
        if not allowed:
            return None
        if not any(fitness.is_confirmed(f, now) for f in allowed):
            try:
                async with asyncio.timeout(RECHECK_S):
                    await self._outside.recheck()
            except TimeoutError:
                return None
            found = fitness.suspects(job, self._faults, self._intake.inventory)
        return fitness.refusal(found, self._permissions, self._clock.now())

    def _refusal_sighting(
        self, job: jobs.NodeJob, refused: fitness.Refusal, again: requeue.NextStart
    ) -> Sighting:
        fault = refused.fault
        return Sighting(
            source="agent",
            position=f"{self._identity.boot_id()}:refused:{job.job_id}:{job.restart_count}:{job.started_at.timestamp():.6f}",
            at=self._clock.now(),
            kind="check",
            code="prolog_refused",
            severity=records.Severity.INFO,
            message=f"job {job.job_id} was refused at its start: {fault.key}: {fault.message}",
            device=fault.device,
            gpu_uuid=fault.gpu_uuid,
            pci_bus_id=fault.pci_bus_id,
            job_id=job.job_id,
            detail={
                "request_id": str(refused.permission.request_id),
                "fault": fault.key,
                "event_id": fault.event_ids[0] if fault.event_ids else None,
                "restart_count": job.restart_count,
                vocabulary.BOUND_BY: again.bound_by(self._identity.node),
            },
        )

    def _page_directory(self, job: jobs.NodeJob) -> dict[str, Any]:
        if job.uid is None:
            return {}
        try:
            made = self._pages.make(job.job_id, job.uid, job.gid if job.gid is not None else job.uid)
        except OSError as exc:
            _log.warning("no page directory for job %d: %s", job.job_id, exc)
            return {"page_error": exc.strerror or str(exc)}
        return {"page_directory": str(made)}

    async def _epilog(self, request: Mapping[str, Any]) -> dict[str, Any]:
        job = self._book.end(self._job(request), self._clock.now())
        self._intake.store([job.item(self._identity)], self._book.changed_states())
        self._outside.collect_from(job)
        return {"fit": True}

    async def _healthcheck(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"sweep": "started" if self._outside.start_sweep() else "running"}

    async def _status(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return self._outside.status()

    async def _recheck(self, request: Mapping[str, Any]) -> dict[str, Any]:
        cleared = await self._outside.recheck(
            clear=request.get("clear") is True, relearn=request.get("relearn") is True
        )
        return {"cleared": cleared, "faults": self._faults.rows()}

    def _job(self, request: Mapping[str, Any]) -> jobs.NodeJob:
        job = jobs.job_of(request, self._clock.now())
        uuids = self._intake.inventory.of_job(job.gpus, self._numbering())
        return replace(job, gpu_uuids=uuids)
