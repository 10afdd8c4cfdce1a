"""How long each job has held its GPUs on this node without using them: shown to its owner, never acted on.

The heartbeat carries it. A GPU whose load is unknown (no NVML, no answer) does not count as idle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, digits
from probing_cluster.probe_agent.jobs import jobs, processes

EVERY_S = 15.0
BUSY_FRAC = 0.01
"""A GPU with a lower load is idle: NVML rounds to hundredths."""
MAX_JOBS = 64


class HeldJobs:
    """The idle jobs of one node."""

    def __init__(
        self, book: jobs.JobBook, *, proc: Path = processes.PROC, clock: clock.Clock = clock.SYSTEM
    ) -> None:
        self._book = book
        self._proc = proc
        self._clock = clock
        self._since: dict[int, tuple[datetime, datetime, str]] = {}
        """Job to its start, the time since when it has been idle, and the reason (`rows`)."""

    def look(self, reading: Mapping[str, Any] | None) -> None:
        """Judge the GPUs of every running job by the last NVML reading."""
        now, found = self._clock.now(), {}
        idle = [(job, why) for job in self._jobs() if (why := self._gpus_idle(reading, job.gpu_uuids or ()))]
        alive = self._alive({job.uid for job, _ in idle if job.uid is not None})
        for job, why in idle[:MAX_JOBS]:
            if job.uid is not None and job.job_id not in alive:
                why = "no_program"
            before = self._since.get(job.job_id)
            since = before[1] if before is not None and before[0] == job.started_at else now
            found[job.job_id] = (job.started_at, since, why)
        self._since = found

    def rows(self) -> dict[str, Any]:
        """The heartbeat's idle jobs: job to `since` and `why` (`no_program`, `no_process` or `no_load`)."""
        running = set(self._book.running)
        return {
            str(job_id): {"since": clock.iso_z(since), "why": why}
            for job_id, (_, since, why) in self._since.items()
            if job_id in running
        }

    def _jobs(self) -> Iterator[jobs.NodeJob]:
        for job_id in self._book.running:
            job = self._book.get(job_id)
            if job is not None and job.gpu_uuids:
                yield job

    @staticmethod
    def _gpus_idle(reading: Mapping[str, Any] | None, uuids: Sequence[str]) -> str:
        """Why these GPUs count as idle: `no_process` or `no_load`; empty where one of them is busy or its load is unknown."""
        rows = ((reading or {}).get("snapshot") or {}).get("gpus") or ()
        mine = [row for row in rows if row.get("uuid") in set(uuids) and row.get("lost") is None]
        if len(mine) < len(set(uuids)):
            return ""
        loads = [row.get("utilization_frac") for row in mine]
        if any(load is None or load >= BUSY_FRAC for load in loads):
            return ""
        lists = [row.get("processes") for row in mine]
        return "no_process" if all(listed == [] for listed in lists) else "no_load"

    def _alive(self, uids: set[int]) -> set[int]:
        """Ids of the jobs that have a process of one of these users on this node."""
        if not uids:
            return set()
        sluids, found = self._book.sluids(), set()
        for entry in os.scandir(self._proc):
            try:
                if not digits.is_number(entry.name) or entry.stat().st_uid not in uids:
                    continue
            except OSError:
                continue  # it has just ended
            pid = int(entry.name)
            job = processes.job_of(pid, self._proc, sluids)
            if job is not None and job not in found and not processes.is_extern(pid, self._proc):
                found.add(job)
        return found
