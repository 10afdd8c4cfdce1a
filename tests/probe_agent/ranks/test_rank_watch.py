"""The agent watches real processes through their pages: what it tells of stopped ones, and of an attempt that has ended."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import rank_rig

from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import guarded_reads, jobs, processes
from probing_cluster.probe_agent.ranks import deaths, rank_pages, rank_watch, ranks
from probing_cluster.probe_agent.stacks import pyspy, pyspy_program


def test_a_stopped_rank_is_told_once_with_everybodys_stacks(rig: rank_rig.Rig) -> None:
    """The stall, then one snapshot of all ranks: who, where, how far."""
    rig.rank(0)
    rig.rank(1, steps=21)
    kinds = rig.beats_until("rank_snapshot")
    assert kinds.count("rank_stall") == 2
    assert kinds.count("rank_snapshot") == 1
    snapshot = next(s for s in rig.taken if s.kind == "rank_snapshot")
    assert (snapshot.source, snapshot.job_id, snapshot.detail["world_size"]) == ("probe", 7, 2)
    assert {s.detail["restart_count"] for s in rig.taken} == {0}
    first, second = snapshot.detail["ranks"]
    assert (first["rank"], second["rank"], second["steps"], first["alive"]) == (0, 1, 21, True)
    if pyspy_program.program() is None:
        assert "not installed" in first["stack_error"]
    else:
        assert [f["function"] for f in first["stack"]][:1] == ["dataloader"]


def test_the_last_words_of_an_attempt_that_failed(rig: rank_rig.Rig) -> None:
    """A rank was killed, then Slurm ended the rest: who died first, how far they were, and where everybody was."""
    victim, other = rig.rank(0), rig.rank(1, steps=21)

    async def fail() -> list[Sighting]:
        await rig.watch.beat()
        job = rig.book.get(7)
        assert job is not None
        assert await rig.watch.last_words(job) == []
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        await asyncio.sleep(deaths.AT_ONCE_S + 0.2)
        other.send_signal(signal.SIGTERM)
        other.wait()
        words = await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()
        return words

    words = {s.kind: s for s in asyncio.run(fail())}
    assert set(words) == {"rank_dead", "rank_snapshot", "last_progress"}
    assert [s.kind for s in rig.taken] == ["first_step"]
    assert words["rank_dead"].detail["rank"] == 0
    assert words["last_progress"].detail["steps"] == 21
    snapshot = words["rank_snapshot"].detail
    assert snapshot["last"] is True
    assert [(r["rank"], r["alive"]) for r in snapshot["ranks"]] == [(0, False), (1, True)]


def test_a_new_agent_takes_snapshots_of_their_own(rig: rank_rig.Rig) -> None:
    """The stall that it finds is not the row of a snapshot that the agent before it took of the same start."""
    rig.rank(0)
    snapshots = []

    async def live() -> None:
        for _ in range(2):
            assert await rig.watch.snapshot(7)
            snapshots.append(rig.taken.pop())
            await rig.watch.close()
            rig.begin_anew()

    asyncio.run(live())
    assert len({snapshot.position for snapshot in snapshots}) == 2


def end_in_order(rig: rank_rig.Rig, number: int) -> None:
    """A rank whose page says that it left Python by itself."""
    process = rig.rank(number)
    path = rig.directory / f"p{process.pid}.page"
    process.kill()
    process.wait()
    page = bytearray(path.read_bytes())
    at = layout.PROGRESS_AT[page[layout.H_PROGRESS * 8] & 1]
    words = [int.from_bytes(page[(at + i) * 8 : (at + i) * 8 + 8], "little") for i in range(5)]
    words[layout.P_PHASE] = layout.ENDED
    for i, word in enumerate([*words, layout.check_of(words)]):
        page[(at + i) * 8 : (at + i) * 8 + 8] = word.to_bytes(8, "little")
    path.write_bytes(page)


@pytest.mark.parametrize("whole", [True, False], ids=["the whole gang", "its other rank is elsewhere"])
def test_ranks_that_ended_in_order_are_reported_if_their_gang_is_elsewhere_too(
    rig: rank_rig.Rig, whole: bool
) -> None:
    """Of a gang of two with both ranks here nothing is to be found out; alone, a rank may have left too early."""
    for number in (0, 1) if whole else (1,):
        end_in_order(rig, number)

    async def end() -> list[Sighting]:
        job = rig.book.get(7)
        assert job is not None
        words = await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()
        return words

    words = {s.kind: s for s in asyncio.run(end())}
    assert set(words) == {"first_step", "last_progress", *(() if whole else ("rank_snapshot",))}
    if not whole:
        (left,) = words["rank_snapshot"].detail["ranks"]
        assert (left["rank"], left["phase"], left["alive"], left["steps"]) == (1, "ended", False, 20)
        assert left["window"] is None


def test_a_silent_reader_costs_a_user_one_wait_a_beat(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader runs as the job's owner, who may stop it: the owner's other jobs wait, so that nobody else's do."""
    monkeypatch.setattr(rank_pages, "READ_DEADLINE_S", 1.0)
    uid, gid = os.getuid(), os.getgid()
    rig.book.start(jobs.NodeJob(job_id=8, started_at=datetime.now(UTC), uid=uid, gid=gid))
    for directory in (rig.directory, rig.directories.make(8, uid, gid)):
        (directory / "p1.page").write_bytes(b"")  # a job without a page has no reader
    pages = rig.watch._pages

    async def live() -> tuple[set[int], set[int]]:
        await rig.watch.look(7)
        reader = pages.jobs[7].lane._child
        assert reader is not None
        os.kill(reader.pid, signal.SIGSTOP)
        await rig.watch.beat()
        while_silent = set(pages.jobs)
        monkeypatch.setattr(rank_pages, "READ_DEADLINE_S", 60.0)
        await rig.watch.beat()
        afterwards = set(pages.jobs)
        await rig.watch.close()
        return while_silent, afterwards

    assert asyncio.run(live()) == ({7}, {7, 8})


def test_a_snapshot_that_takes_long_holds_up_no_look(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stacks of a process whose memory is locked are waited for until their deadline: another rank's death is reported meanwhile."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.0)
    rig.rank(0)
    victim = rig.rank(1)
    live = rig.watch._snapshots.live

    async def run() -> None:
        unlocked = asyncio.Event()

        async def slow(watched: ranks.WatchedJob) -> dict[str, Any]:
            await unlocked.wait()
            return await live(watched)

        monkeypatch.setattr(rig.watch._snapshots, "live", slow)
        async with asyncio.timeout(60):
            while "rank_stall" not in {s.kind for s in rig.taken}:
                await rig.watch.beat()
                await asyncio.sleep(0.05)
            victim.kill()
            victim.wait()
            await rig.watch.beat()
            assert "rank_dead" in {s.kind for s in rig.taken}
            assert "rank_snapshot" not in {s.kind for s in rig.taken}
            # Another one of the same job waits for this one: else they would pile up.
            monkeypatch.setattr(rank_watch, "SNAPSHOT_EVERY_S", 0.0)
            assert not await rig.watch.snapshot(7)
            unlocked.set()
            await asyncio.gather(*rig.watch._beside)
        assert "rank_snapshot" in {s.kind for s in rig.taken}
        await rig.watch.close()

    asyncio.run(run())


def test_stacks_that_take_long_delay_no_other_users(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ranks of one user are waited for, a place is left."""
    rig.rank(0)
    taker = rig.watch._snapshots

    async def stacks(rank: ranks.Rank, start_ticks: int, owner: tuple[int, int]) -> dict[str, Any]:
        if owner[0] == 1000:
            await asyncio.Event().wait()
        return {"stack": []}

    async def run() -> dict[str, Any]:
        await rig.watch.look(7)
        (rank,) = rig.watch._pages.jobs[7].ranks.values()
        waiting = [asyncio.create_task(taker._entry(rank, (1000, 1000))) for _ in range(8)]
        await asyncio.sleep(0)  # all of them have asked for a place
        async with asyncio.timeout(60):
            entry = await taker._entry(rank, (1001, 1001))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await rig.watch.close()
        return entry

    monkeypatch.setattr(taker, "_python_stacks", stacks)
    assert asyncio.run(run())["stack"] == []


def test_no_stack_is_read_of_a_process_that_took_a_ranks_pid(rig: rank_rig.Rig) -> None:
    """py-spy is root and knows a process by its number: one with another start time is not the rank."""
    process = rig.rank(0)

    async def live() -> dict[str, Any]:
        await rig.watch.look(7)
        watched = rig.watch._pages.jobs[7]
        (rank,) = watched.ranks.values()
        assert rank.facts is not None
        rank.facts = dataclasses.replace(rank.facts, start_ticks=rank.facts.start_ticks - 1)
        found = await rig.watch._snapshots.live(watched)
        await rig.watch.close()
        return dict(found["ranks"][0])

    entry = asyncio.run(live())
    assert entry["pid"] == process.pid
    assert entry["stack_error"] == "the process ended before its stack was read"
    assert "stack" not in entry


def test_a_job_that_cannot_be_looked_at_costs_only_its_own_look(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its processes make of themselves: the part of the agent that looks at every job goes on."""
    rig.rank(0)
    noted: list[str] = []
    look = rig.watch.look

    async def fails(job_id: int) -> list[Sighting]:
        if job_id == 7:
            raise IndexError("list index out of range")
        return await look(job_id)

    uid, gid = os.getuid(), os.getgid()
    rig.book.start(jobs.NodeJob(job_id=8, started_at=datetime.now(UTC), uid=uid, gid=gid))
    rig.directories.make(8, uid, gid)
    monkeypatch.setattr(rig.watch, "look", fails)
    monkeypatch.setattr(rig.self_watch, "failed", lambda _name, error, **_: noted.append(error))

    async def live() -> None:
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(live())
    assert noted == ["job 7: IndexError: list index out of range"]


def test_a_rank_inside_an_exec_has_no_stack(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can tell whether the process is still the same: py-spy, which is root's, is not started for it. It has not ended."""
    rig.rank(0)

    async def live() -> None:
        await rig.watch.beat()
        monkeypatch.setattr(processes, "facts", hangs)
        assert await rig.watch.snapshot(7)
        await rig.watch.close()

    def hangs(pid: int, *_: Any) -> None:
        raise guarded_reads.ProcessHangs(f"process {pid}")

    asyncio.run(live())
    (snapshot,) = (s for s in rig.taken if s.kind == "rank_snapshot")
    (entry,) = snapshot.detail["ranks"]
    assert entry["stack_error"] == f"it is not known whether the process still runs: process {entry['pid']}"


def test_ranks_that_could_not_be_asked_come_first_in_the_next_look(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a user's processes answer slowly not all fit into one look: none of them is never looked at."""
    pids = {rig.rank(number).pid for number in range(3)}
    facts, looked, left = processes.facts, set[int](), [0]

    def one_a_look(pid: int, *rest: Any) -> processes.ProcessFacts | None:
        if not left[0]:
            raise guarded_reads.ProcessHangs(f"process {pid}")
        left[0] -= 1
        looked.add(pid)
        return facts(pid, *rest)

    async def live() -> None:
        monkeypatch.setattr(processes, "facts", one_a_look)
        for _ in range(4):
            left[0] = 1
            await rig.watch.look(7)
        await rig.watch.close()

    asyncio.run(live())
    assert looked == pids


@pytest.mark.parametrize("answer", ["[]", "{}", "null", "[1]", '["x"]', "[{}]"])
def test_what_py_spy_answers_of_a_process_that_hides_its_threads(answer: str, tmp_path: Path) -> None:
    """The process's memory is its user's: any answer is no stack, and no failure."""
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{answer}\nE\n")
    program.chmod(0o755)
    found = asyncio.run(pyspy.stacks(children.Children(), os.getpid(), os.getuid(), command=str(program)))
    assert found.get("stack") in (None, [])


def test_a_rank_that_its_own_user_traces_is_told_so(rig: rank_rig.Rig) -> None:
    """A debugger's attach, as the kernel shows it; of a rank that nobody traces nothing is said of tracers."""
    attach, detach = 16, 17
    libc = ctypes.CDLL(None, use_errno=True)
    held, free = rig.rank(3), rig.rank(4)
    if libc.ptrace(attach, held.pid, None, None):
        pytest.skip(f"this kernel refuses ptrace: {os.strerror(ctypes.get_errno())}")
    try:
        os.waitpid(held.pid, os.WUNTRACED)

        async def look() -> dict[int, dict[str, Any]]:
            found = await rig.watch.stacks(7, {held.pid, free.pid})
            await rig.watch.close()
            return found

        found = asyncio.run(look())
    finally:
        libc.ptrace(detach, held.pid, None, None)
    assert (found[held.pid]["state"], found[held.pid]["traced_by_owner"]) == ("t", True)
    assert "traced_by_owner" not in found[free.pid]
