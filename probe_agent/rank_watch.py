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
import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, errors, records, sanitize
from probing_cluster.probe_agent import (
    children,
    collect,
    deaths,
    gpu_load,
    identity,
    jobs,
    nccl_ras,
    page_directories,
    pages,
    processes,
    progress,
    pyspy,
    self_watch,
    stall,
    step_windows,
)
from probing_cluster.probe_agent.sighting import Sighting

NAME = "ranks"
READ_DEADLINE_S = 5.0
SNAPSHOT_EVERY_S = 30.0
"""A job's snapshot is taken at most this often, whoever asks."""
MAX_RANKS = 64
"""Ranks of one job on one node in a snapshot; more are counted."""
MAX_ROWS = 256
"""Ranks of all jobs of this node in one heartbeat: some 100 KB at most; a GPU node has eight."""
MAX_DEATHS = 1024
"""Deaths told of one attempt on one node."""
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
    died_s: float | None = None
    """When it was found to have ended, by the monotonic clock."""
    died_first: bool = False
    """Its death was news: it was not ended because of others."""

    @property
    def alive(self) -> bool:
        """The process that made the page still runs (a recycled pid has another start time)."""
        return self.facts is not None and self.facts.state != "Z"

    @property
    def end(self) -> deaths.End | None:
        """How it ended; None while it lives."""
        if self.died_s is None:
            return None
        in_order = self.page.phase == "ended"
        return deaths.End(
            died_s=self.page.phase_since_ns / 1e9 if in_order else self.died_s, in_order=in_order
        )


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
    deaths: int = 0
    told: progress.Told = field(default_factory=progress.Told)

    def chosen(self) -> list[Rank]:
        """At most MAX_RANKS by number; pages whose process was never met come last, since anyone can write them."""
        ranked = sorted(
            self.ranks.values(), key=lambda r: (not r.was_alive, r.page.rank is None, r.page.rank or 0)
        )
        return ranked[:MAX_RANKS]


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
        gpus: Callable[[], Mapping[str, Any] | None] = lambda: None,
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
        self._gpus = gpus
        self._proc = proc
        self._clock = at
        self._jobs: dict[int, Watched] = {}
        self._turn = asyncio.Semaphore(STACKS_AT_ONCE)
        self._deaths = deaths.DeathWatch(at.monotonic_s)
        self._asking: set[asyncio.Task[None]] = set()

    async def beat(self) -> None:
        """One look at every running job; takes a snapshot of a job that has just stalled."""
        running = set(self._book.running)
        for job_id in [j for j in self._jobs if j not in running and self._is_over(j)]:
            await self._drop(job_id)
        for job_id in running:
            seen = await self.look(job_id)
            if seen:
                self._take(seen)
            if any(s.kind == "rank_stall" for s in seen):
                await self.snapshot(job_id)

    def _is_over(self, job_id: int) -> bool:
        """Its last words have been taken, or nobody will ask for them."""
        job = self._book.get(job_id)
        return job is None or job.collected

    async def _drop(self, job_id: int) -> Watched | None:
        watched = self._jobs.pop(job_id, None)
        if watched is not None:
            await watched.lane.close()
            for pid in watched.ranks:
                self._deaths.forget(pid)
        return watched

    async def wait(self, seconds: float) -> None:
        """Until it is time to look again: after `seconds`, or when the death of a rank has settled."""
        with contextlib.suppress(TimeoutError):  # nobody died
            async with asyncio.timeout(seconds):
                await self._deaths.somebody.wait()
            self._deaths.somebody.clear()  # before settling: who dies meanwhile wakes the next wait
            await asyncio.sleep(deaths.SETTLE_S)

    async def look(self, job_id: int) -> list[Sighting]:
        """Reads a job's pages and says what is new."""
        watched = await self._read(job_id)
        if watched is None:
            return []
        seen: list[Sighting] = []
        for rank in watched.ranks.values():
            seen += self._judge(watched, rank)
        return seen + self._news(watched)

    async def last_words(self, job: jobs.Job) -> list[Sighting]:
        """What an ended job's pages say of its training; of a running one nothing, it will be asked again."""
        known = self._book.get(job.job_id)
        if job.released_at is None or known is None or known.restart_count != job.restart_count:
            return []
        watched = await self._read(job.job_id)
        if watched is None:
            return []
        gone = [r for r in watched.ranks.values() if not r.alive]
        dead = [s for rank in gone for s in self._judge_dead(watched, rank, settled=True)]
        news = [*dead, *self._last_snapshot(watched), *self._news(watched, last=True)]
        await self._drop(job.job_id)
        return news

    def _last_snapshot(self, watched: Watched) -> list[Sighting]:
        """The pages as an attempt that did not end in order left them: who was inside what when it was torn down."""
        chosen = [r for r in watched.chosen() if r.page.steps or r.page.recent_collectives]
        if all(r.page.phase == "ended" and not _raised(r.page) for r in chosen):
            return []
        # Who was ended with the job lived until then: only a death that was news is one.
        entries = [self._told(r) | {"alive": r.page.phase != "ended" and not r.died_first} for r in chosen]
        return [self._told_snapshot(watched, entries, last=True)]

    def _news(self, watched: Watched, *, last: bool = False) -> list[Sighting]:
        when = progress.Moment(now=self._clock.now(), monotonic_s=self._clock.monotonic_s())
        seen = [rank.page for rank in watched.ranks.values()]
        return progress.news(watched.job, seen, watched.told, when, last=last)

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
        chosen = watched.chosen()
        entries = await asyncio.gather(*(self._entry(r) for r in chosen))
        self._take([self._told_snapshot(watched, list(entries))])
        if self._has_ras(watched):
            # Beside everything else: it may take its 14 s, and other jobs' ranks are watched meanwhile.
            asking = asyncio.create_task(self._ask_ras(watched))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        return True

    def _has_ras(self, watched: Watched) -> bool:
        """One node asks for all, of a job whose listener cannot be mistaken for that of the user's other job here."""
        mine = [
            j for j in map(self._book.get, self._book.running) if j is not None and j.uid == watched.job.uid
        ]
        nccl = any("nccl" in rank.page.backend for rank in watched.ranks.values())
        return nccl and len(mine) == 1 and collect.writes_here(watched.job, self._who.node)

    async def _ask_ras(self, watched: Watched) -> None:
        told = await nccl_ras.ask(self._children, watched.job)
        if told is None or isinstance(told, str):
            if told is not None:
                self._watch.failed(NAME, f"job {watched.job.job_id}: NCCL RAS: {told}", state="ok")
            return
        position = (
            f"{watched.job.restart_count}:{watched.job.started_at.timestamp():.3f}:ras:{watched.snapshots}"
        )
        said = nccl_ras.words(told)
        self._take([self._sighting(watched.job, "nccl_ras", position, said, nccl_ras.detail(told))])

    def rows(self) -> dict[str, Any]:
        """For the heartbeat: `<job>:<rank>` to what that rank does, how far it is and what its steps take."""
        now_ns = self._now_ns()
        shown = ((job_id, rank) for job_id, watched in self._jobs.items() for rank in watched.chosen())
        return {
            f"{job_id}:{_name(rank.page)}": _row(rank, now_ns)
            for job_id, rank in itertools.islice(shown, MAX_ROWS)
        }

    async def close(self) -> None:
        """Ends the readers."""
        for asking in self._asking:
            asking.cancel()
        for watched in self._jobs.values():
            await watched.lane.close()
        self._deaths.close()

    async def _read(self, job_id: int) -> Watched | None:
        job = self._book.get(job_id)
        directory = self._directories.path(job_id)
        if job is None or job.uid is None or not directory.is_dir():
            return None
        watched = self._jobs.get(job_id)
        if watched is None or watched.job.restart_count != job.restart_count:
            await self._drop(job_id)
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

    def _judge(self, watched: Watched, rank: Rank) -> list[Sighting]:
        if not rank.alive:
            return self._judge_dead(watched, rank)
        assert rank.facts is not None
        look = stall.Look(
            at_s=self._now_ns() / 1e9,
            page=rank.page,
            moved_bytes=rank.facts.moved_bytes,
            cpu_s=rank.facts.cpu_s,
        )
        rank.progress, found = stall.follow(rank.progress, look, self._limits)
        return [self._told_stall(watched.job, rank, found)] if found is not None else []

    def _judge_dead(self, watched: Watched, rank: Rank, *, settled: bool = False) -> list[Sighting]:
        if rank.dead_told or not rank.was_alive:
            return []
        now_s = self._clock.monotonic_s()
        for one in watched.ranks.values():
            if one.died_s is None and not one.alive:
                one.died_s = self._deaths.died_s(one.page.pid) or now_s
        assert rank.end is not None
        if not settled and now_s - rank.end.died_s < deaths.SETTLE_S:
            return []
        rank.dead_told = True
        others = [r.end for r in watched.ranks.values() if r is not rank and r.was_alive]
        if not deaths.is_news(rank.end, others):
            return []
        rank.died_first = True
        watched.deaths += 1
        if watched.deaths > MAX_DEATHS:
            return []  # a user may start and kill processes for ever: the first thousand have told the story
        page = rank.page
        return [
            self._sighting(
                watched.job,
                "rank_dead",
                f"{page.pid}:{page.start_ticks}:dead",
                f"{_said(page)} is gone after step {page.steps} in phase {page.phase}",
                {
                    "rank": page.rank,
                    "steps": page.steps,
                    "phase": page.phase,
                    "step_id": page.step_id,
                    "world_size": page.world_size,
                },
                pid=page.pid,
                at=self._clock.now() - timedelta(seconds=max(0.0, now_s - rank.end.died_s)),
            )
        ]

    def _told_stall(self, job: jobs.Job, rank: Rank, found: stall.Stall) -> Sighting:
        page = rank.page
        return self._sighting(
            job,
            "rank_stall",
            f"{page.pid}:{page.start_ticks}:stall:{page.steps}:{page.phase_since_ns}",
            f"{_said(page)} has not got on for {found.stalled_s:.0f} s in phase {page.phase} "
            f"(its own history allows {found.bound_s:.0f} s)",
            {"rank": page.rank, "steps": page.steps, "phase": page.phase, "bound_s": round(found.bound_s, 3)},
            pid=page.pid,
            measured=round(found.stalled_s, 3),
            threshold=round(found.bound_s, 3),
        )

    def _told_snapshot(
        self, watched: Watched, entries: list[dict[str, Any]], *, last: bool = False
    ) -> Sighting:
        worlds = [r.page.world_size for r in watched.ranks.values() if r.page.world_size]
        return self._sighting(
            watched.job,
            "rank_snapshot",
            f"{watched.job.restart_count}:{watched.job.started_at.timestamp():.3f}:snapshot:{'last' if last else watched.snapshots}",
            f"{len(entries)} ranks of job {watched.job.job_id} on {self._who.node}",
            {
                "ranks": entries,
                "world_size": max(worlds, default=None),
                "more": max(0, len(watched.ranks) - len(entries)),
                "gpus": gpu_load.of_job(self._gpus(), watched.job.gpu_uuids),
                "refused_pages": watched.refused,
                "last": last,
            },
        )

    def _told(self, rank: Rank) -> dict[str, Any]:
        page, now_ns = rank.page, self._now_ns()
        return {
            "rank": page.rank,
            "pid": page.pid,
            "step_id": page.step_id,
            "alive": rank.alive,
            "phase": page.phase,
            "phase_age_s": _age_s(now_ns, page.phase_since_ns),
            "stalled": rank.progress is not None and rank.progress.told,
            "steps": page.steps,
            "loader_ends": page.loader_ends,
            "step_age_s": _age_s(now_ns, page.step_ns),
            "calls": [_call(c, now_ns) for c in page.recent_collectives[-MAX_CALLS:]],
            "window": step_windows.latest(page.recent_steps),
        }

    async def _entry(self, rank: Rank) -> dict[str, Any]:
        page, entry = rank.page, self._told(rank)
        if rank.facts is not None:
            entry |= {"state": rank.facts.state, "wchan": rank.facts.wchan}
            workers = [processes.facts(p, self._proc) for p in processes.children_of(page.pid, self._proc)]
            entry["workers"] = "".join(w.state for w in workers if w is not None)
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
        at: datetime | None = None,
    ) -> Sighting:
        return Sighting(
            source="probe",
            position=f"{self._who.boot_id()}:{job.job_id}:{position}",
            at=at or self._clock.now(),
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
    """The rank, or `pid` and its process id before it has one."""
    return f"pid{page.pid}" if page.rank is None else str(page.rank)


def _said(page: pages.ProbePage) -> str:
    return f"rank {'?' if page.rank is None else page.rank} (pid {page.pid})"


def _age_s(now_ns: int, then_ns: int | None) -> float | None:
    return None if then_ns is None else round(max(0.0, (now_ns - then_ns) / 1e9), 3)


def _raised(page: pages.ProbePage) -> bool:
    """Its last collective ended with an exception."""
    return bool(page.recent_collectives) and page.recent_collectives[-1].raised


def _call(call: pages.Collective, now_ns: int) -> dict[str, Any]:
    return {
        "group": call.group,
        "seq": call.seq,
        "op": call.op,
        "numel": call.numel,
        "dtype_code": call.dtype_code,
        "group_size": call.group_size,
        "left": call.leave_ns is not None,
        "raised": call.raised,
        "is_p2p": call.is_p2p,
        "waited_s": round(max(0, (call.leave_ns or now_ns) - call.enter_ns) / 1e9, 6),
    }


def _row(rank: Rank, now_ns: int) -> dict[str, Any]:
    page = rank.page
    inside = page.inside()
    row = {
        "pid": page.pid,
        "alive": rank.alive,
        "state": rank.facts.state if rank.facts is not None else "",
        "phase": page.phase,
        "phase_age_s": _age_s(now_ns, page.phase_since_ns),
        "steps": page.steps,
        "step_age_s": _age_s(now_ns, page.step_ns),
        "inside": f"{inside.op} {inside.group}#{inside.seq}" if inside is not None else "",
        "inside_s": _age_s(now_ns, inside.enter_ns) if inside is not None else None,
        "checkpoints": page.checkpoints,
        "world_size": page.world_size,
        "stalled": rank.progress is not None and rank.progress.told,
        "window": step_windows.latest(page.recent_steps),
    }
    return {name: value for name, value in row.items() if value not in (None, "", False) or name == "alive"}
