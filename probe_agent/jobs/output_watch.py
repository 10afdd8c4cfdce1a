"""Looks at how large the output of each running job is: a child that has become the job's owner reads the sizes, never the content."""

from __future__ import annotations

from datetime import datetime, timedelta

from probing_cluster.core import clock
from probing_cluster.probe_agent.jobs import collect, jobs, output_growth

EVERY_S = 30.0
"""Interval at which it is checked whose output is due."""
MAX_JOBS = 64
"""Jobs looked at in one check. Of more, those that have been due longest."""
_FIRST = timedelta(seconds=60)
_MOST = timedelta(seconds=600)
_SHARE = 30
"""A job that has run for an hour is looked at every two minutes."""


class OutputWatch:
    """The sizes of the output of one node's running jobs."""

    def __init__(self, book: jobs.JobBook, collector: collect.Collector, clock: clock.Clock) -> None:
        self._book = book
        self._collector = collector
        self._clock = clock
        self._due: dict[tuple[int, datetime], datetime] = {}
        """A job's start to when its output is looked at next."""

    async def look(self) -> None:
        """Look at the output of each running job that is due."""
        running = [job for job_id in self._book.running if (job := self._book.get(job_id)) is not None]
        self._collector.sizes.keep((*running, *self._book.uncollected()))
        starts = {(job.job_id, job.started_at) for job in running}
        self._due = {start: at for start, at in self._due.items() if start in starts}
        slow: set[int | None] = set()
        n_looks = 0
        for job in sorted(running, key=self._due_at):
            now = self._clock.now()
            if now < self._due_at(job) or n_looks >= MAX_JOBS:
                break
            if job.uid in slow:
                continue
            self._due[job.job_id, job.started_at] = now + min(
                max(_FIRST, (now - job.started_at) / _SHARE), _MOST
            )
            n_looks += 1
            if not await self._look_at(job):
                slow.add(job.uid)

    def _due_at(self, job: jobs.NodeJob) -> datetime:
        began = min(job.started_at, self._clock.now())
        return self._due.get((job.job_id, job.started_at), began)

    async def _look_at(self, job: jobs.NodeJob) -> bool:
        """False where the reader did not answer: the user's other jobs then wait."""
        paths = self._collector.outputs(job)
        if not paths:
            return True
        answer = await self._collector.ask(job, {"op": "sizes", "paths": paths})
        rows = answer.get("sizes")
        for path, row in rows.items() if isinstance(rows, dict) else ():
            if path in paths and (size := output_growth.size_of(row)) is not None:
                self._collector.sizes.note(job, path, size, self._clock.now())
        return answer.get("refused") != collect.NO_ANSWER
