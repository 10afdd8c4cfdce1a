"""Everything about a job's ranks on this node at one moment: pages, process states, stacks, GPUs, network adapters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from probing_cluster.core import clock, vocabulary
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import guarded_reads, jobs, processes, user_turns
from probing_cluster.probe_agent.ranks import gpu_load, nic_traffic, pages, rank_rows, step_windows
from probing_cluster.probe_agent.ranks.ranks import Rank, WatchedJob
from probing_cluster.probe_agent.stacks import cpu_sampling, native, pyspy, sleeps

MAX_CALLS = 16
"""Collectives of each rank."""
MAX_WORKERS = 64
"""Child processes of each rank whose state is read; a program may have any number, zombies for example."""
STACKS_AT_ONCE, STACKS_OF_ONE = 3, 2
"""Processes whose stacks are read at once, of all users and of one: of some no stack can be read before its deadline."""
MAX_CHARS = 60_000
"""Most characters of a snapshot, as JSON: of a longer detail the database keeps nothing (`probing.shortened_events`)."""
_SHORTER: Sequence[tuple[int, int, Literal["all", "of_groups", "last"]]] = (
    (8, 40, "all"),
    (4, 25, "all"),
    (1, 25, "all"),
    (0, 25, "of_groups"),
    (0, 12, "of_groups"),
    (0, 5, "of_groups"),
    (0, 5, "last"),
    (0, 0, "last"),
)
"""Threads beside the main one, frames of a stack, and which calls are kept: all, the last of each group, or the last."""


class SnapshotTaker:
    """Takes snapshots of a job's ranks: `live` asks the processes, `last` reads what an ended attempt has left."""

    def __init__(
        self,
        *,
        children: children.Children,
        gpus: Callable[[], Mapping[str, Any] | None],
        nics: nic_traffic.NicTraffic,
        proc: Path = processes.PROC,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._children = children
        self._gpus = gpus
        self._nics = nics
        self._proc = proc
        self._clock = clock
        self._turns = user_turns.ReaderTurns(STACKS_AT_ONCE, STACKS_OF_ONE)

    async def live(self, watched: WatchedJob) -> dict[str, Any]:
        """The detail of a `rank_snapshot`, stacks included."""
        await self._nics.read()
        ranks, owner = watched.chosen(), _owner(watched.job)
        slept = {r.page.pid: sleeps.read(r.page.pid, self._proc) for r in ranks if not r.stalled}
        entries = await asyncio.gather(*(self._entry(r, owner) for r in ranks))
        await self._add_native(entries, slept, owner)
        return self._detail(watched, list(entries), last=False)

    async def stacks(self, watched: WatchedJob, pids: Collection[int]) -> dict[int, dict[str, Any]]:
        """States, Python stacks and C functions of a job's running ranks, by pid."""
        ranks, owner = [r for r in watched.chosen() if r.page.pid in pids and r.alive], _owner(watched.job)
        slept = {r.page.pid: sleeps.read(r.page.pid, self._proc) for r in ranks if not r.stalled}
        entries = await asyncio.gather(*(self._entry(r, owner) for r in ranks))
        await self._add_native(entries, slept, owner)
        return {entry["pid"]: entry for entry in entries}

    def last(self, watched: WatchedJob) -> dict[str, Any] | None:
        """The pages that an attempt left: what each rank was inside of when it was torn down.

        None if the whole gang was here and ended in order. Ranks that ended in order while others of their gang are elsewhere may have
        left too early, which only all nodes' pages show: they are reported shortly.
        """
        chosen = [r for r in watched.chosen() if r.page.steps or r.page.recent_collectives]
        if all(r.page.phase == "ended" and not _raised(r.page) for r in chosen):
            world = max((r.page.world_size or 0 for r in chosen), default=0)
            if world <= len({r.page.rank for r in chosen}):
                return None
            return self._detail(watched, [_left_in_order(self._page_fields(r)) for r in chosen], last=True)
        # Who was ended with the job lived until then: only a death that was news is one.
        entries = [
            self._page_fields(r) | {"alive": r.page.phase != "ended" and not r.died_first} for r in chosen
        ]
        return self._detail(watched, entries, last=True)

    def _detail(self, watched: WatchedJob, entries: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
        worlds = [r.page.world_size for r in watched.ranks.values() if r.page.world_size]
        stalled_s = _stalled_since_s(watched)
        return _fitted(
            {
                "ranks": entries,
                "world_size": max(worlds, default=None),
                "more": max(0, sum(r.is_rank for r in watched.ranks.values()) - len(entries)),
                "gpus": gpu_load.of_job(self._gpus(), watched.job.gpu_uuids),
                "nics": {} if last or stalled_s is None else self._nics.since(stalled_s),
                "refused_pages": watched.refused,
                "last": last,
            }
        )

    def _page_fields(self, rank: Rank) -> dict[str, Any]:
        page, now_ns = rank.page, int(self._clock.monotonic_s() * 1e9)
        return {
            "rank": page.rank,
            "pid": page.pid,
            "step_id": page.step_id,
            "alive": rank.alive,
            "phase": page.phase,
            "phase_age_s": rank_rows.age_s(now_ns, page.phase_since_ns),
            "stalled": rank.stalled,
            "steps": page.steps,
            "loader_ends": page.loader_ends,
            "step_age_s": rank_rows.age_s(now_ns, page.step_ns),
            "calls": [_call(c, now_ns) for c in page.recent_collectives[-MAX_CALLS:]],
            "window": step_windows.latest(page.recent_steps),
        }

    async def _entry(self, rank: Rank, owner: tuple[int, int]) -> dict[str, Any]:
        page, entry = rank.page, self._page_fields(rank)
        if rank.facts is not None:
            entry |= {"state": rank.facts.state, "wchan": rank.facts.wchan}
            if rank.facts.state == "t":
                entry["traced_by_owner"] = processes.tracer_of(page.pid, self._proc) == owner[0]
            async with self._turns.of(owner[0]):
                # In turn, too: each child's state is a file, and the event loop waits while it is read.
                entry |= self._workers(page.pid)
                stacks = await self._python_stacks(rank, rank.facts.start_ticks, owner)
            entry |= {
                key: value for key, value in stacks.items() if key != "gil_stack"
            }  # one of those beside it
        return entry

    def _workers(self, pid: int) -> dict[str, Any]:
        """A letter for the state of each child of a process; `more_workers`: how many others there are."""
        workers = processes.children_of(pid, self._proc)
        states = "".join(processes.state_of(p, self._proc) or "" for p in workers[:MAX_WORKERS])
        n_others = max(0, len(workers) - MAX_WORKERS)
        return {"workers": states} | ({"more_workers": n_others} if n_others else {})

    async def _python_stacks(self, rank: Rank, start_ticks: int, owner: tuple[int, int]) -> dict[str, Any]:
        """The stacks of the rank's process; none if it may have ended meanwhile: its pid may by now be another's, and py-spy is root."""
        try:
            return await self._stacks_of_same(rank.page, start_ticks, owner)
        except guarded_reads.ProcessHangs as exc:
            return {"stack_error": f"it is not known whether the process still runs: {exc}"}

    async def _stacks_of_same(
        self, page: pages.ProbePage, start_ticks: int, owner: tuple[int, int]
    ) -> dict[str, Any]:
        if not self._is_same(page.pid, start_ticks, owner[0]):
            return {"stack_error": vocabulary.STACK_CAME_TOO_LATE}
        stacks = await pyspy.stacks(self._children, page.pid, owner[0], inside=page.pid_inside)
        if stacks.get("holds_gil") and self._is_same(page.pid, start_ticks, owner[0]):
            stacks |= await cpu_sampling.look(self._children, page.pid, owner, stacks, inside=page.pid_inside)
        return (
            stacks
            if self._is_same(page.pid, start_ticks, owner[0])
            else {"stack_error": vocabulary.STACK_CAME_TOO_LATE}
        )

    def _is_same(self, pid: int, start_ticks: int, uid: int) -> bool:
        """Whether it is still that process, and its owner's: an exec of a setuid program keeps number and start. Raises ProcessHangs."""
        found = processes.facts(pid, self._proc)
        return found is not None and (found.start_ticks, found.uid) == (start_ticks, uid)

    async def _add_native(
        self, entries: Sequence[dict[str, Any]], slept: Mapping[int, int | None], owner: tuple[int, int]
    ) -> None:
        """Adds the C functions inside the stacks; of a rank that gets on they would be those of another moment."""
        by_pid = {e["pid"]: e for e in entries if "state" in e and not e.get("moved")}
        still = {pid for pid, e in by_pid.items() if pid not in slept or e.get("holds_gil")}
        targets = {pid: slept[pid] for pid in by_pid if pid not in still and slept[pid] is not None}
        async with self._turns.of(owner[0]):
            native_stacks = await native.look(self._children, {**dict.fromkeys(still), **targets}, owner)
        for pid, found in native_stacks.items():
            by_pid[pid] |= found


def _stalled_since_s(watched: WatchedJob) -> float | None:
    """The latest progress of any rank here, by the monotonic clock; None if none of them lives."""
    alive = [r for r in watched.ranks.values() if r.alive and r.progress is not None]
    return max((r.progress.since_s for r in alive if r.progress is not None), default=None)


def _owner(job: jobs.NodeJob) -> tuple[int, int]:
    """uid and gid of whose job it is; its pages could not have been read without."""
    assert job.uid is not None
    return job.uid, job.gid if job.gid is not None else job.uid


def _fitted(detail: dict[str, Any]) -> dict[str, Any]:
    """The detail with as much of its stacks and calls as is kept; innermost frames, which say what a rank does, go last."""
    if _n_chars(detail) <= MAX_CHARS:
        return detail
    for n_threads, n_frames, calls in _SHORTER:
        shorter = detail | {
            "ranks": [_cut(entry, n_threads, n_frames, calls) for entry in detail["ranks"]],
            "shortened": True,
        }
        if _n_chars(shorter) <= MAX_CHARS:
            break
    return shorter


def _n_chars(detail: Mapping[str, Any]) -> int:
    return len(json.dumps(detail, default=str))


def _cut(entry: dict[str, Any], n_threads: int, n_frames: int, calls: str) -> dict[str, Any]:
    cut = {key: entry[key][:n_frames] for key in ("stack", "native") if isinstance(entry.get(key), list)}
    if isinstance(entry.get("other_stacks"), list):
        cut["other_stacks"] = [stack[:n_frames] for stack in entry["other_stacks"][:n_threads]]
    if calls != "all":
        cut["calls"] = _last_calls(entry) if calls == "of_groups" else entry["calls"][-1:]
    return entry | cut


def _last_calls(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The last call of each group."""
    return list({call["group"]: call for call in entry["calls"]}.values())


def _left_in_order(entry: dict[str, Any]) -> dict[str, Any]:
    """The short entry of a rank that ended in order: the last call of each group, and no time of its steps."""
    return entry | {"alive": False, "calls": _last_calls(entry), "window": None}


def _raised(page: pages.ProbePage) -> bool:
    """Its last collective ended with an exception."""
    return bool(page.recent_collectives) and page.recent_collectives[-1].raised


def _call(call: pages.Collective, now_ns: int) -> dict[str, Any]:
    role = call.role
    named = {"role": role} if role else {}
    return named | {
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
