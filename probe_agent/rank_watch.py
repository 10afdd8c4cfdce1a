"""Watches the training ranks of this node's jobs: dead ones, stalled ones, and the evidence when asked.

Every beat it reads the pages of each running job (as the job's owner), joins them with /proc, and
tells: `rank_dead` when a process has gone without ending, `rank_stall` when one has stopped by its own
history. A `rank_snapshot` (pages, process states, stacks) is taken once per stall, and whenever the
service asks because a stall was seen on another node of the same job. All of it is source `probe`:
the user's word, never by itself a reason to touch a node.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, errors, records, sanitize
from probing_cluster.probe_agent import (
    children,
    identity,
    jobs,
    page_directories,
    pages,
    processes,
    pyspy,
    self_watch,
    stall,
)
from probing_cluster.probe_agent.sighting import Sighting

NAME = "ranks"
READ_DEADLINE_S = 5.0
SNAPSHOT_EVERY_S = 30.0
"""A job's snapshot is taken at most this often, whoever asks."""
MAX_RANKS = 64
"""Ranks of one job on one node in a snapshot; more are counted."""
MAX_CALLS = 16
"""Collectives of each rank in a snapshot."""
STACKS_AT_ONCE = 2

Take = Callable[[list[Sighting]], object]
_CHILD = (sys.executable, "-I", "-m", "probing_cluster.probe_agent.page_child")


@dataclass
class Rank:
    """One process with a page."""

    page: pages.ProbePage
    facts: processes.Facts | None
    progress: stall.Progress | None = None
    dead_told: bool = False
    was_alive: bool = False

    @property
    def alive(self) -> bool:
        """The process that made the page still runs (a recycled pid has another start time)."""
        return self.facts is not None and self.facts.state != "Z"


@dataclass
class Watched:
    """One job on this node."""

    job: jobs.Job
    lane: children.Lane
    ranks: dict[int, Rank] = field(default_factory=dict)
    """By pid."""
    refused: int = 0
    snapshot_s: float | None = None
    snapshots: int = 0


class RankWatch:
    """For one agent."""

    def __init__(
        self,
        *,
        who: identity.Identity,
        started: children.Children,
        book: jobs.JobBook,
        directories: page_directories.PageDirectories,
        take: Take,
        watch: self_watch.SelfWatch,
        limits: stall.Limits,
        proc: Path = processes.PROC,
        at: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._who = who
        self._children = started
        self._book = book
        self._directories = directories
        self._take = take
        self._watch = watch
        self._limits = limits
        self._proc = proc
        self._clock = at
        self._jobs: dict[int, Watched] = {}
        self._turn = asyncio.Semaphore(STACKS_AT_ONCE)

    async def beat(self) -> None:
        """One look at every running job; takes a snapshot of a job that has just stalled."""
        running = set(self._book.running)
        for job_id in [j for j in self._jobs if j not in running]:
            await self._jobs.pop(job_id).lane.close()
        for job_id in running:
            seen = await self.look(job_id)
            if seen:
                self._take(seen)
            if any(s.kind == "rank_stall" for s in seen):
                await self.snapshot(job_id)

    async def look(self, job_id: int) -> list[Sighting]:
        """Reads a job's pages and says what is new."""
        watched = await self._read(job_id)
        if watched is None:
            return []
        seen: list[Sighting] = []
        for rank in watched.ranks.values():
            seen += self._judge(watched.job, rank)
        return seen

    async def snapshot(self, job_id: int) -> bool:
        """Takes everything about a job's ranks here, stacks included; False when one was taken just now."""
        watched = await self._read(job_id)
        if watched is None or not watched.ranks:
            return False
        now_s = self._clock.monotonic_s()
        if watched.snapshot_s is not None and now_s - watched.snapshot_s < SNAPSHOT_EVERY_S:
            return False
        watched.snapshot_s = now_s
        watched.snapshots += 1
        chosen = sorted(watched.ranks.values(), key=lambda r: (r.page.rank is None, r.page.rank or 0))[
            :MAX_RANKS
        ]
        entries = await asyncio.gather(*(self._entry(r) for r in chosen))
        self._take([self._told_snapshot(watched, list(entries))])
        return True

    def rows(self) -> dict[str, Any]:
        """For the heartbeat: `<job>:<rank>` to phase, steps and how long ago, of every rank on this node."""
        now_ns = self._now_ns()
        return {
            f"{job_id}:{rank.page.rank if rank.page.rank is not None else f'pid{pid}'}": _row(rank, now_ns)
            for job_id, watched in self._jobs.items()
            for pid, rank in list(watched.ranks.items())[:MAX_RANKS]
        }

    async def close(self) -> None:
        """Ends the readers."""
        for watched in self._jobs.values():
            await watched.lane.close()

    async def _read(self, job_id: int) -> Watched | None:
        job = self._book.get(job_id)
        directory = self._directories.path(job_id)
        if job is None or job.uid is None or not directory.is_dir():
            return None
        watched = self._jobs.get(job_id)
        if watched is None or watched.job.restart_count != job.restart_count:
            if watched is not None:
                await watched.lane.close()
            lane = children.Lane(self._children, f"pages {job_id}", _CHILD)
            watched = self._jobs[job_id] = Watched(job=job, lane=lane)
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

    def _update(self, watched: Watched, answer: Mapping[str, Any]) -> None:
        refused = len(answer.get("refused") or {}) + int(answer.get("more") or 0)
        for raw in (answer.get("pages") or {}).values():
            try:
                page = pages.parse(bytes.fromhex(raw))
            except errors.MalformedInput:
                refused += 1  # garbage, or torn twice: the next beat reads it again
                continue
            self._see(watched, page)
        watched.refused = refused

    def _see(self, watched: Watched, page: pages.ProbePage) -> None:
        found = processes.facts(page.pid, self._proc)
        # A page may name any pid: only a process of this user, started when the page says, in this job, counts.
        if found is not None and (found.start_ticks != page.start_ticks or found.uid != watched.job.uid):
            found = None
        rank = watched.ranks.get(page.pid)
        if rank is None or rank.page.start_ticks != page.start_ticks:
            if found is not None and processes.job_of(page.pid, self._proc) not in (None, watched.job.job_id):
                return
            rank = watched.ranks[page.pid] = Rank(page=page, facts=found)
        rank.page, rank.facts = page, found
        rank.was_alive |= rank.alive

    def _judge(self, job: jobs.Job, rank: Rank) -> list[Sighting]:
        if not rank.alive:
            return self._judge_dead(job, rank)
        assert rank.facts is not None
        look = stall.Look(
            at_s=self._now_ns() / 1e9,
            page=rank.page,
            moved_bytes=rank.facts.moved_bytes,
            cpu_s=rank.facts.cpu_s,
        )
        rank.progress, found = stall.follow(rank.progress, look, self._limits)
        return [self._told_stall(job, rank, found)] if found is not None else []

    def _judge_dead(self, job: jobs.Job, rank: Rank) -> list[Sighting]:
        if rank.dead_told or not rank.was_alive or rank.page.phase == "ended":
            return []
        rank.dead_told = True
        page = rank.page
        return [
            self._sighting(
                job,
                "rank_dead",
                f"{page.pid}:{page.start_ticks}:dead",
                f"rank {_name(page)} (pid {page.pid}) is gone after step {page.steps} in phase {page.phase}",
                {"rank": page.rank, "steps": page.steps, "phase": page.phase},
                pid=page.pid,
            )
        ]

    def _told_stall(self, job: jobs.Job, rank: Rank, found: stall.Stall) -> Sighting:
        page = rank.page
        return self._sighting(
            job,
            "rank_stall",
            f"{page.pid}:{page.start_ticks}:stall:{page.steps}:{page.phase_since_ns}",
            f"rank {_name(page)} (pid {page.pid}) has not got on for {found.stalled_s:.0f} s in phase {page.phase} "
            f"(its own history allows {found.bound_s:.0f} s)",
            {"rank": page.rank, "steps": page.steps, "phase": page.phase, "bound_s": round(found.bound_s, 3)},
            pid=page.pid,
            measured=round(found.stalled_s, 3),
            threshold=round(found.bound_s, 3),
        )

    def _told_snapshot(self, watched: Watched, entries: list[dict[str, Any]]) -> Sighting:
        worlds = [r.page.world_size for r in watched.ranks.values() if r.page.world_size]
        return self._sighting(
            watched.job,
            "rank_snapshot",
            f"{watched.job.restart_count}:{watched.job.started_at.timestamp():.3f}:snapshot:{watched.snapshots}",
            f"{len(entries)} ranks of job {watched.job.job_id} on {self._who.node}",
            {
                "ranks": entries,
                "world_size": max(worlds, default=None),
                "more": max(0, len(watched.ranks) - len(entries)),
                "refused_pages": watched.refused,
            },
        )

    async def _entry(self, rank: Rank) -> dict[str, Any]:
        page, now_ns = rank.page, self._now_ns()
        entry: dict[str, Any] = {
            "rank": page.rank,
            "pid": page.pid,
            "alive": rank.alive,
            "phase": page.phase,
            "phase_age_s": _age_s(now_ns, page.phase_since_ns),
            "steps": page.steps,
            "step_age_s": _age_s(now_ns, page.step_ns),
            "calls": [_call(c, now_ns) for c in page.recent_collectives[-MAX_CALLS:]],
            "times": _step_times(page),
        }
        if rank.facts is not None:
            entry |= {"state": rank.facts.state, "wchan": rank.facts.wchan}
            entry["workers_alive"] = len(processes.children_of(page.pid, self._proc))
            async with self._turn:
                entry |= await pyspy.stacks(self._children, page.pid)
        return entry

    def _sighting(
        self,
        job: jobs.Job,
        kind: str,
        position: str,
        message: str,
        detail: dict[str, Any],
        *,
        pid: int | None = None,
        measured: float | None = None,
        threshold: float | None = None,
    ) -> Sighting:
        return Sighting(
            source="probe",
            position=f"{self._who.boot_id()}:{job.job_id}:{position}",
            at=self._clock.now(),
            kind=kind,
            severity=records.Severity.INFO,
            message=sanitize.clean(message),
            job_id=job.job_id,
            pid=pid,
            measured=measured,
            threshold=threshold,
            unit="s" if measured is not None else None,
            detail=detail,
        )

    def _now_ns(self) -> int:
        return int(self._clock.monotonic_s() * 1e9)


def _name(page: pages.ProbePage) -> str:
    return "?" if page.rank is None else str(page.rank)


def _age_s(now_ns: int, then_ns: int | None) -> float | None:
    return None if then_ns is None else round(max(0.0, (now_ns - then_ns) / 1e9), 3)


def _call(call: pages.Collective, now_ns: int) -> dict[str, Any]:
    return {
        "group": call.group,
        "seq": call.seq,
        "op": call.op,
        "numel": call.numel,
        "dtype_code": call.dtype_code,
        "group_size": call.group_size,
        "left": call.leave_ns is not None,
        "is_p2p": call.is_p2p,
        "waited_s": round(max(0, (call.leave_ns or now_ns) - call.enter_ns) / 1e9, 6),
    }


def _step_times(page: pages.ProbePage) -> list[list[float]]:
    """[step, total, input, waiting, checkpoint] in seconds of the recent steps; backward holds the gradient waits."""
    times = []
    for before, step in zip(page.recent_steps, page.recent_steps[1:], strict=False):
        if step.step == before.step + 1:
            spans = (step.end_ns - before.end_ns, step.input_ns, step.collective_ns, step.checkpoint_ns)
            times.append([float(step.step), *(round(s / 1e9, 6) for s in spans)])
    return times


def _row(rank: Rank, now_ns: int) -> dict[str, Any]:
    page = rank.page
    inside = page.inside()
    return {
        "pid": page.pid,
        "alive": rank.alive,
        "state": rank.facts.state if rank.facts is not None else "",
        "phase": page.phase,
        "steps": page.steps,
        "step_age_s": _age_s(now_ns, page.step_ns),
        "inside": f"{inside.op} {inside.group}#{inside.seq}" if inside is not None else "",
        "checkpoints": page.checkpoints,
    }
