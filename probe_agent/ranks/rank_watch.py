"""Watches the training ranks of this node's jobs: dead ones, stalled ones, and the evidence when asked.

Every beat it reads the pages of each running job (as the job's owner), joins them with /proc, and
tells: `rank_dead` when a process has gone without ending, `rank_stall` when one has stopped by its own
history. A `rank_snapshot` (pages, process states, stacks) is taken once per stall, and whenever the
service asks because a stall was seen on another node of the same job. All of it is source `probe`:
the user's word, never by itself a reason to touch a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from probing_cluster.core import clock
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.jobs import jobs, output_files, page_directories, processes, row_share
from probing_cluster.probe_agent.ranks import (
    deaths,
    nic_traffic,
    progress,
    rank_deaths,
    rank_events,
    rank_pages,
    rank_rows,
    rank_snapshot,
    stall,
)
from probing_cluster.probe_agent.ranks.ranks import Rank, WatchedJob
from probing_cluster.probe_agent.ranks.ras import nccl_ras

_log = logging.getLogger(__name__)
SNAPSHOT_EVERY_S = 30.0
"""A job's snapshot is taken at most this often, whoever asks."""

Take = Callable[[list[Sighting]], object]
Work = Callable[..., Awaitable[object]]


class RankWatch:
    """Watches the ranks of every job on one agent's node."""

    def __init__(
        self,
        *,
        identity: identity.Identity,
        children: children.Children,
        book: jobs.JobBook,
        directories: page_directories.PageDirectories,
        take: Take,
        watch: self_watch.SelfWatch,
        limits: stall.StallLimits,
        shares: row_share.RowShares | None = None,
        gpus: Callable[[], Mapping[str, Any] | None] = lambda: None,
        nics: nic_traffic.NicTraffic | None = None,
        proc: Path = processes.PROC,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._identity = identity
        self._children = children
        self._book = book
        self._take = take
        self._shares = shares or row_share.RowShares(clock)
        self._watch = watch
        self._limits = limits
        self._clock = clock
        self._deaths = deaths.DeathWatch(clock.monotonic_s)
        self._pages = rank_pages.RankPages(
            children=children, book=book, directories=directories, watch=watch,
            death_watch=self._deaths, proc=proc, clock=clock,
        )  # fmt: skip
        self._nics = nics or nic_traffic.NicTraffic(None)
        self._snapshots = rank_snapshot.SnapshotTaker(
            children=children, gpus=gpus, nics=self._nics, proc=proc, clock=clock
        )
        self._rank_events = rank_events.RankEvents(identity, clock)
        self._beside: set[asyncio.Task[None]] = set()
        self._snapped: set[int] = set()
        """Jobs a snapshot of which is under way."""
        self._failed: set[int] = set()
        """Running jobs whose look has failed, which the log tells once."""

    async def beat(self) -> None:
        """One look at every running job; begins a snapshot of a job that has just stalled."""
        await self._pages.drop_ended()
        self._failed &= set(self._book.running)
        if any(watched.ranks for watched in self._pages.jobs.values()):
            await self._nics.read()
        silent: set[int] = set()
        for job_id in self._book.running:
            job = self._book.get(job_id)
            # A user can stop the reader of their pages: their other jobs wait for the next beat, other users do not.
            if job is not None and job.uid in silent:
                continue
            await self._bounded(job_id, self._look_and_take, job_id)
            if job is not None and job.uid is not None and self._pages.is_silent(job_id):
                silent.add(job.uid)

    async def _look_and_take(self, job_id: int) -> None:
        sightings = await self.look(job_id)
        if sightings:
            self._take_of(self._book.get(job_id), sightings)
        if any(s.kind == "rank_stall" for s in sightings):
            self._begin(job_id, self.snapshot, job_id)

    def _begin(self, job_id: int, work: Work, *about: Any) -> None:
        """Do beside everything else what may take minutes, such as stacks of processes whose memory is locked: other jobs are watched meanwhile."""
        task = asyncio.create_task(self._bounded(job_id, work, *about))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _bounded(self, job_id: int, work: Work, *about: Any) -> None:
        """Pages and processes are their users': what they hold may cost work on that job, and nothing else of the node."""
        try:
            await work(*about)
        except Exception as exc:  # noqa: BLE001 - logged once a job, and counted
            if job_id not in self._failed:
                _log.exception("the ranks of job %d could not be looked at", job_id)
            self._failed.add(job_id)
            self._watch.failed(rank_pages.NAME, f"job {job_id}: {type(exc).__name__}: {exc}")

    async def wait(self, seconds: float) -> None:
        """Waits for the next look: `seconds`, or until the death of a rank has settled."""
        with contextlib.suppress(TimeoutError):  # nobody died
            async with asyncio.timeout(seconds):
                await self._deaths.somebody.wait()
            self._deaths.somebody.clear()  # before settling: who dies meanwhile wakes the next wait
            await asyncio.sleep(deaths.SETTLE_S)

    async def look(self, job_id: int) -> list[Sighting]:
        """Reads a job's pages and says what is new."""
        watched = await self._pages.read(job_id)
        if watched is None:
            return []
        stalled = [
            found for rank in watched.ranks.values() if (found := self._stalled(watched, rank)) is not None
        ]
        dead = rank_deaths.judge(watched, self._rank_events, self._clock)
        return [*dead, *(self._rank_events.stall(watched.job, s) for s in stalled), *self._news(watched)]

    async def last_words(self, job: jobs.NodeJob) -> list[Sighting]:
        """What an ended job's pages say of its training; of a running one nothing, it will be asked again."""
        known = self._book.get(job.job_id)
        if job.released_at is None or known is None or known.restart_count != job.restart_count:
            return []
        watched = await self._pages.read(job.job_id)
        if watched is None:
            return []
        news = rank_deaths.judge(watched, self._rank_events, self._clock, settled=True)
        left = self._snapshots.last(watched)
        if left is not None:
            news.append(self._rank_events.snapshot(watched.job, "last", left))
        news += self._news(watched, last=True)
        await self._pages.drop(job.job_id)
        return news

    async def snapshot(self, job_id: int) -> bool:
        """Takes everything about a job's ranks here, stacks included; False when one was taken just now, or is under way."""
        if job_id in self._snapped:
            return False
        self._snapped.add(job_id)
        try:
            return await self._take_snapshot(job_id)
        finally:
            self._snapped.discard(job_id)

    async def _take_snapshot(self, job_id: int) -> bool:
        watched = await self._pages.read(job_id)
        if watched is None or not watched.ranks:
            return False
        now_s = self._clock.monotonic_s()
        if watched.snapshot_s is not None and now_s - watched.snapshot_s < SNAPSHOT_EVERY_S:
            return False
        watched.snapshot_s = now_s
        # A count would begin anew with the agent, and its rows would be those of earlier snapshots.
        taken = f"{now_s:.3f}"
        detail = await self._snapshots.live(watched)
        self._take_of(watched.job, [self._rank_events.snapshot(watched.job, taken, detail)])
        if self._has_ras(watched):
            self._begin(job_id, self._ask_ras, watched, taken)
        return True

    async def stacks(self, job_id: int, pids: Collection[int]) -> dict[int, dict[str, Any]]:
        """Stacks of some of a job's processes now, by pid; empty for a job that is not watched."""
        watched = await self._pages.read(job_id)
        return {} if watched is None else await self._snapshots.stacks(watched, pids)

    def rows(self) -> dict[str, Any]:
        """The heartbeat's ranks; see rank_rows."""
        return rank_rows.rows(self._pages.jobs, self._now_ns())

    async def close(self) -> None:
        """Ends the readers, and what is done beside."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self._pages.close()
        self._deaths.close()

    def _stalled(self, watched: WatchedJob, rank: Rank) -> stall.Stall | None:
        if not rank.alive or not rank.is_rank:
            return None
        assert rank.facts is not None
        # A launcher waits for its rank, and a pool for its program: as long as one of them works, none has stopped.
        work = [rank.facts, *(r.facts for r in watched.alike(rank) if r.alive and r.facts is not None)]
        moved = [facts.moved_bytes for facts in work if facts.moved_bytes is not None]
        look = stall.RankObservation(
            at_s=self._now_ns() / 1e9,
            page=rank.page,
            moved_bytes=sum(moved) if moved else None,
            cpu_s=sum(facts.cpu_s for facts in work),
        )
        rank.progress, found = stall.follow(rank.progress, look, self._limits)
        return found

    def _news(self, watched: WatchedJob, *, last: bool = False) -> list[Sighting]:
        when = progress.ProgressMoment(now=self._clock.now(), monotonic_s=self._clock.monotonic_s())
        probe_pages = [rank.page for rank in watched.ranks.values()]
        return progress.news(watched.job, probe_pages, watched.reported, when, last=last)

    def _has_ras(self, watched: WatchedJob) -> bool:
        """One node asks for all, of a job whose listener cannot be mistaken for that of the user's other job here."""
        mine = [
            j for j in map(self._book.get, self._book.running) if j is not None and j.uid == watched.job.uid
        ]
        nccl = any("nccl" in rank.page.backend for rank in watched.ranks.values())
        return nccl and len(mine) == 1 and output_files.writes_here(watched.job, self._identity.node)

    async def _ask_ras(self, watched: WatchedJob, taken: str) -> None:
        report = await nccl_ras.ask(self._children, watched.job)
        if isinstance(report, str):
            self._watch.failed(rank_pages.NAME, f"job {watched.job.job_id}: NCCL RAS: {report}", state="ok")
        elif report is not None:
            self._take_of(watched.job, [self._rank_events.ras(watched.job, taken, report)])

    def _take_of(self, job: jobs.NodeJob | None, sightings: list[Sighting]) -> None:
        """Takes a running job's sightings, as many as its user's share of the node's rows has room for."""
        if job is None or job.uid is None:
            return
        kept = self._shares.take_running(job.uid, sightings)
        if len(kept) < len(sightings):
            left_out = len(sightings) - len(kept)
            why = (
                f"{left_out} events not stored, its user's share of the node's rows of this hour has no room"
            )
            self._watch.failed(rank_pages.NAME, f"job {job.job_id}: {why}", state="ok")
        if kept:
            self._take(kept)

    def _now_ns(self) -> int:
        return int(self._clock.monotonic_s() * 1e9)
