"""The agent watches real processes through their pages: what it tells of stopped ones, and of an attempt that has ended."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime

import rank_rig

from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.ranks import deaths
from probing_cluster.probe_agent.stacks import pyspy_program


def test_a_stopped_rank_is_told_once_with_everybodys_stacks(rig: rank_rig.Rig) -> None:
    """The stall, then one snapshot of all ranks: who, where, how far."""
    rig.rank(0)
    rig.rank(1, steps=21)
    kinds = rig.beats_until("rank_snapshot")
    assert kinds.count("rank_stall") == 2
    assert kinds.count("rank_snapshot") == 1
    snapshot = next(s for s in rig.taken if s.kind == "rank_snapshot")
    assert (snapshot.source, snapshot.job_id, snapshot.detail["world_size"]) == ("probe", 7, 2)
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


def test_an_attempt_that_ended_in_order_leaves_no_snapshot(rig: rank_rig.Rig) -> None:
    """Its ranks have left Python by themselves."""
    process = rig.rank(0)
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

    async def end() -> list[Sighting]:
        job = rig.book.get(7)
        assert job is not None
        words = await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()
        return words

    assert [s.kind for s in asyncio.run(end())] == ["first_step", "last_progress"]
