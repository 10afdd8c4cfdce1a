"""Reads the pages of this node's jobs, each as its owner, and joins them with /proc: which rank is which process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, errors
from probing_cluster.probe_agent import (
    children,
    deaths,
    jobs,
    page_directories,
    pages,
    processes,
    self_watch,
)
from probing_cluster.probe_agent.ranks import Rank, Watched

NAME = "ranks"
"""What the readers are called in the agent's account of itself."""
READ_DEADLINE_S = 5.0
_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.page_child")


class RankPages:
    """Every watched job of one agent; a page may say anything, so only what /proc bears out makes a rank alive."""

    def __init__(
        self,
        *,
        started: children.Children,
        book: jobs.JobBook,
        directories: page_directories.PageDirectories,
        watch: self_watch.SelfWatch,
        death_watch: deaths.DeathWatch,
        proc: Path = processes.PROC,
        at: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._children = started
        self._book = book
        self._directories = directories
        self._watch = watch
        self._deaths = death_watch
        self._proc = proc
        self._clock = at
        self.jobs: dict[int, Watched] = {}

    async def read(self, job_id: int) -> Watched | None:
        """A job's ranks as they are now (as they were last, when they cannot be read); None without any."""
        job = self._book.get(job_id)
        directory = self._directories.path(job_id)
        if job is None or job.uid is None or not directory.is_dir():
            return None
        watched = self.jobs.get(job_id)
        if watched is None or watched.job.restart_count != job.restart_count:
            await self.drop(job_id)
            lane = children.Lane(self._children, f"pages {job_id}", _CHILD)
            watched = self.jobs[job_id] = Watched(job=job, lane=lane)
        request = {
            "directory": str(directory),
            "uid": job.uid,
            "gid": job.gid if job.gid is not None else job.uid,
        }
        try:
            answer = await watched.lane.ask(request, deadline_s=READ_DEADLINE_S)
        except children.ChildFailed as exc:
            self._watch.failed(NAME, f"job {job_id}: {exc}")
            return watched
        self._watch.read(NAME, self._clock.now())
        self._update(watched, answer)
        return watched

    async def drop_ended(self) -> None:
        """Lets go of jobs that are over: their last words have been taken, or nobody will ask for them."""
        running = set(self._book.running)
        for job_id in [j for j in self.jobs if j not in running]:
            job = self._book.get(job_id)
            if job is None or job.collected:
                await self.drop(job_id)

    async def drop(self, job_id: int) -> None:
        """Ends a job's reader and forgets its ranks."""
        watched = self.jobs.pop(job_id, None)
        if watched is not None:
            await watched.lane.close()
            for pid in watched.ranks:
                self._deaths.forget(pid)

    async def close(self) -> None:
        """Ends the readers."""
        for watched in self.jobs.values():
            await watched.lane.close()

    def _update(self, watched: Watched, answer: Mapping[str, Any]) -> None:
        refused = len(answer.get("refused") or {}) + int(answer.get("more") or 0)
        read: set[int] = set()
        for name, raw in (answer.get("pages") or {}).items():
            try:
                page = pages.parse(bytes.fromhex(raw))
            except errors.MalformedInput:
                refused += 1  # garbage, or torn twice: the next beat reads it again
                read.add(int(name[1:-5]))
                continue
            self._see(watched, page)
            read.add(page.pid)
        if "pages" in answer:
            self._forget(watched, read)
        watched.refused = refused

    def _forget(self, watched: Watched, read: set[int]) -> None:
        """Lets go of ranks whose page is gone, so that ever new pages fill no memory; a death is told first."""
        for pid in [p for p in watched.ranks if p not in read]:
            rank = watched.ranks[pid]
            rank.facts = self._facts(watched, rank.page)
            if rank.alive or rank.dead_told or not rank.was_alive:
                self._deaths.forget(pid)
                del watched.ranks[pid]

    def _facts(self, watched: Watched, page: pages.ProbePage) -> processes.Facts | None:
        """The process of a page, which may name any: only one of this user, started when the page says, counts."""
        found = processes.facts(page.pid, self._proc)
        same = found is not None and found.start_ticks == page.start_ticks and found.uid == watched.job.uid
        return found if same else None

    def _see(self, watched: Watched, page: pages.ProbePage) -> None:
        found = self._facts(watched, page)
        rank = watched.ranks.get(page.pid)
        if rank is None or rank.page.start_ticks != page.start_ticks:
            if found is not None and processes.job_of(page.pid, self._proc) not in (None, watched.job.job_id):
                return
            rank = watched.ranks[page.pid] = Rank(page=page, facts=found)
        if found is not None and not rank.was_alive:
            self._deaths.add(page.pid)
        rank.page, rank.facts = page, found
        rank.was_alive |= rank.alive
