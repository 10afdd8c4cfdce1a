"""Reads the pages of this node's jobs, each as its owner, and joins them with /proc: which rank is which process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, errors
from probing_cluster.core import processes as core_processes
from probing_cluster.probe_agent import children, self_watch
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import guarded_reads, jobs, page_directories, processes
from probing_cluster.probe_agent.ranks import deaths, pages
from probing_cluster.probe_agent.ranks.ranks import Rank, WatchedJob

NAME = "ranks"
"""What the readers are called in the agent's account of itself."""
READ_DEADLINE_S = 5.0
SEEK_TIMES = 3
"""Whole looks for the process of a page that was made in a container: one that is not found then has ended before."""
_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.ranks.page_child")


def _may_hold_pages(directory: Path, *, known: bool) -> bool:
    """Whether a job's page directory is there and, unless its reader runs already (`known`), not empty: a reader costs 8 MB.

    The first entry shows it; the size of an empty directory is another on every file system.
    """
    try:
        with os.scandir(directory) as entries:
            return known or next(entries, None) is not None
    except OSError:
        return False


class RankPages:
    """Every watched job of one agent; a page may say anything, so only what /proc bears out makes a rank alive."""

    def __init__(
        self,
        *,
        children: children.Children,
        book: jobs.JobBook,
        directories: page_directories.PageDirectories,
        watch: self_watch.SelfWatch,
        death_watch: deaths.DeathWatch,
        proc: Path = processes.PROC,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._children = children
        self._book = book
        self._directories = directories
        self._watch = watch
        self._deaths = death_watch
        self._proc = proc
        self._clock = clock
        self._namespace = processes.namespace_of("self", proc)
        self.jobs: dict[int, WatchedJob] = {}

    async def read(self, job_id: int) -> WatchedJob | None:
        """A job's ranks as they are now (as they were last, when they cannot be read); None without any."""
        job = self._book.get(job_id)
        directory = self._directories.path(job_id)
        watched = self.jobs.get(job_id)
        if job is None or job.uid is None or not _may_hold_pages(directory, known=watched is not None):
            return None
        if watched is None or watched.job.restart_count != job.restart_count:
            await self.drop(job_id)
            lane = children.Lane(self._children, f"pages {job_id}", _CHILD)
            watched = self.jobs[job_id] = WatchedJob(job=job, lane=lane)
        request = {
            "directory": str(directory),
            "uid": job.uid,
            "gid": job.gid if job.gid is not None else job.uid,
        }
        try:
            answer = await watched.lane.ask(request, deadline_s=READ_DEADLINE_S)
        except core_processes.ChildFailed as exc:
            self._watch.failed(NAME, f"job {job_id}: {exc}")
            watched.silent = True
            return watched
        watched.silent = False
        self._watch.read(NAME, self._clock.now())
        self._update(watched, answer)
        return watched

    def is_silent(self, job_id: int) -> bool:
        """Whether the job's reader did not answer when it was asked last."""
        watched = self.jobs.get(job_id)
        return watched is not None and watched.silent

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
            for rank in watched.ranks.values():
                self._deaths.forget(rank.watched)

    async def close(self) -> None:
        """Ends the readers."""
        for watched in self.jobs.values():
            await watched.lane.close()

    def _update(self, watched: WatchedJob, answer: Mapping[str, Any]) -> None:
        refused = len(answer.get("refused") or {}) + int(answer.get("more") or 0)
        by_name: dict[str, pages.ProbePage] = {}
        for name, raw in (answer.get("pages") or {}).items():
            try:
                page = pages.parse(bytes.fromhex(raw))
            except errors.MalformedInput:
                refused += 1  # garbage, or torn twice: the next beat reads it again
                continue
            if name in layout.names_of(page.pid, page.pid_namespace or 0):
                by_name[name] = page
            else:
                refused += 1  # one page of a process is enough
        found = self._found(watched, by_name)
        # Where not all can be asked in one look, those that were left out most often come first.
        for name in sorted(found, key=lambda name: -watched.unanswered[name]):
            if self._see(watched, name, found[name]):
                del watched.unanswered[name]
            else:
                watched.unanswered[name] += 1
        for name in watched.unanswered.keys() - found:
            del watched.unanswered[name]
        if "pages" in answer:
            self._forget(watched, set(answer["pages"]))
        _mark(list(watched.ranks.values()))
        for rank in watched.ranks.values():
            if rank.helps:
                self._deaths.forget(rank.watched)  # its place is for a rank
        watched.refused = refused
        self._note_unwatched(watched)

    def _note_unwatched(self, watched: WatchedJob) -> None:
        """Shows where ranks live for whose processes there is no room: their deaths are found at the next look, not at once."""
        unwatched = sum(r.alive and r.is_rank and r.watched is None for r in watched.ranks.values())
        if unwatched and watched.job.uid is not None and not self._deaths.has_room(watched.job.uid):
            most = f"{deaths.MAX_WATCHED_OF_ONE} processes of a user and {deaths.MAX_WATCHED} of all"
            why = f"{unwatched} processes are not watched for their end, at most {most} are"
            self._watch.failed(NAME, f"job {watched.job.job_id}: {why}", state="ok")

    def _found(
        self, watched: WatchedJob, by_name: Mapping[str, pages.ProbePage]
    ) -> dict[str, pages.ProbePage]:
        """The pages with the numbers their processes have here: in a container with a PID namespace they know others."""
        found, elsewhere = dict(by_name), {}
        for name, page in by_name.items():
            known = watched.ranks.get(name)
            if page.pid_namespace in (None, self._namespace):
                continue
            found[name] = replace(page, pid=0)
            if known is not None and known.was_alive and known.page.start_ticks == page.start_ticks:
                found[name] = replace(page, pid=known.page.pid)
            elif watched.sought[name, page.start_ticks] < SEEK_TIMES:
                elsewhere[name] = page
        if elsewhere and watched.job.uid is not None:
            numbers = {page.pid_inside for page in elsewhere.values()}
            search = processes.inside(watched.job.uid, numbers, watched.unsearched, self._proc)
            watched.unsearched = search.unanswered
            for name, page in elsewhere.items():
                pid = search.found.get((page.pid_namespace or 0, page.pid_inside), 0)
                found[name] = replace(page, pid=pid)
                # A look that was cut short does not show that the process has ended.
                watched.sought[name, page.start_ticks] += not pid and not search.unanswered
        return found

    def _forget(self, watched: WatchedJob, read: set[str]) -> None:
        """Forgets ranks whose page is gone, so that ever new pages fill no memory; a death is reported first."""
        for name in [n for n in watched.ranks if n not in read]:
            rank = watched.ranks[name]
            with contextlib.suppress(guarded_reads.ProcessHangs):  # it has not ended
                rank.facts = self._facts(watched, rank.page)
            if rank.alive or rank.death_reported or not rank.is_rank or not rank.was_alive:
                self._deaths.forget(rank.watched)
                del watched.ranks[name]
        for one in [s for s in watched.sought if s[0] not in read]:
            del watched.sought[one]

    def _facts(self, watched: WatchedJob, page: pages.ProbePage) -> processes.ProcessFacts | None:
        """The process of a page, which may name any: only one of this user, started when the page says, counts."""
        # Another user's process is not asked: that would use up what may be waited for theirs.
        found = processes.facts(page.pid, self._proc, watched.job.uid)
        same = found is not None and found.start_ticks == page.start_ticks and found.uid == watched.job.uid
        return found if same else None

    def _see(self, watched: WatchedJob, name: str, page: pages.ProbePage) -> bool:
        """Joins a page with its process; False where the process does not show itself now."""
        rank = watched.ranks.get(name)
        # The process of a page that was made in a container may be found only later.
        new = rank is None or (rank.page.pid, rank.page.start_ticks) != (page.pid, page.start_ticks)
        answers = True
        try:
            found = self._facts(watched, page)
        except guarded_reads.ProcessHangs:
            if rank is None or new:
                return False
            found, answers = rank.facts, False  # it has not ended
        if rank is None or new:
            job_id = (
                processes.job_of(page.pid, self._proc, self._book.sluids()) if found is not None else None
            )
            if job_id not in (None, watched.job.job_id):
                return True
            if rank is not None:
                self._deaths.forget(rank.watched)
            rank = watched.ranks[name] = Rank(page=page, facts=None)
            if found is not None:
                rank.ancestors = processes.ancestors(page.pid, self._proc)
        if found is not None and rank.started_s is None:
            rank.started_s = processes.started_s(found)
        # Facts of an earlier look are no proof: the number may be another process's by now.
        if found is not None and found is not rank.facts and rank.watched is None:
            rank.watched = self._deaths.add(page.pid, found.uid)
        rank.page, rank.facts = page, found
        rank.was_alive |= rank.alive
        return answers


def _mark(ranks: Sequence[Rank]) -> None:
    """Marks the processes that are no ranks. Launchers lose their number: Slurm's number of the task is some other rank's."""
    for rank in ranks:
        rank.helps = pages.helps(rank.page, (r.page for r in ranks if r.page.pid in rank.ancestors))
    for rank in ranks:
        below = (r.page for r in ranks if rank.page.pid in r.ancestors and not r.helps)
        launches = rank.was_alive and pages.launches(rank.page, below)
        rank.launches = not rank.page.works and (rank.launches or launches)
        if rank.launches:
            rank.page = replace(rank.page, rank=None, world_size=None)
        if not rank.is_rank:
            rank.progress = None
