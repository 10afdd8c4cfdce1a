"""Deaths of real processes: which are told, and when."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import signal
from datetime import UTC, datetime

import pytest
import rank_rig

from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import processes
from probing_cluster.probe_agent.ranks import deaths, pages, rank_deaths


def test_a_killed_rank_is_told_once(rig: rank_rig.Rig) -> None:
    """SIGKILL leaves a page behind, and nobody else says so."""
    victim = rig.rank(3)
    rig.rank(4)

    async def kill_in_between() -> None:
        await rig.watch.beat()
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        await rig.watch.wait(30)
        await rig.watch.beat()
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(kill_in_between())
    dead = [s for s in rig.taken if s.kind == "rank_dead"]
    assert [(s.pid, s.detail["rank"], s.detail["steps"]) for s in dead] == [(victim.pid, 3, 20)]


@pytest.mark.parametrize(
    ("left", "how_far"),
    [
        (True, "after all_reduce 0#30, without a step of an optimizer"),
        (False, "inside all_reduce 0#30, without a step of an optimizer"),
        (None, "after step 0 in phase loading"),
    ],
)
def test_a_program_without_an_optimizer_has_its_last_collective_named(
    rig: rank_rig.Rig, left: bool | None, how_far: str
) -> None:
    """It makes no steps, and its phase stays that before the first."""
    rig.rank(3)

    async def look() -> None:
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(look())
    (rank,) = rig.watch._pages.jobs[7].ranks.values()
    call = pages.Collective(
        seq=30, group="0", group_size=2, op="all_reduce", numel=4, dtype_code=1, enter_ns=1,
        leave_ns=2 if left else None, is_async=False, is_p2p=False, raised=False,
    )  # fmt: skip
    calls = () if left is None else (call,)
    page = dataclasses.replace(rank.page, steps=0, phase="loading", recent_collectives=calls)
    job = rig.book.get(7)
    assert job is not None
    dead = rig.watch._rank_events.dead(job, page, datetime.now(UTC), together=False)
    assert dead.message == f"rank 3 (pid {page.pid}) is gone {how_far}"


def kill_all(rig: rank_rig.Rig) -> None:
    """Every rank of the node, at once."""
    for process in rig.started:
        process.kill()
    for process in rig.started:
        process.wait()


def deaths_of(rig: rank_rig.Rig) -> list[tuple[int, bool]]:
    """Rank, and whether all died with it, of each death told."""
    return sorted((s.detail["rank"], s.detail["together"]) for s in rig.taken if s.kind == "rank_dead")


def test_a_node_that_loses_all_its_ranks_at_once_is_told(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job goes on: they were not ended with it. Until that is known nothing is said, then once."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.05)
    monkeypatch.setattr(deaths, "TEARDOWN_S", 3600.0)
    rig.rank(0)
    rig.rank(1)

    async def lose() -> None:
        await rig.watch.beat()
        kill_all(rig)
        await rig.watch.wait(30)
        await rig.watch.beat()
        assert deaths_of(rig) == []
        monkeypatch.setattr(deaths, "TEARDOWN_S", 0.0)
        await rig.watch.beat()
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(lose())
    assert deaths_of(rig) == [(0, True), (1, True)]


def test_ranks_that_died_with_their_job_are_not(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled job: its Epilog comes before anything is said, and then it is no news."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.05)
    rig.rank(0)
    rig.rank(1)

    async def cancel() -> None:
        await rig.watch.beat()
        kill_all(rig)
        await rig.watch.wait(30)
        job = rig.book.get(7)
        assert job is not None
        rig.taken += await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()

    asyncio.run(cancel())
    assert deaths_of(rig) == []
    assert any(s.kind == "rank_snapshot" for s in rig.taken)


def test_ranks_that_are_started_anew_were_ended(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun, or the script's next srun, has others run by then."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.05)
    monkeypatch.setattr(deaths, "TEARDOWN_S", 0.0)
    rig.rank(0)
    rig.rank(1)

    async def restart() -> None:
        await rig.watch.beat()
        kill_all(rig)
        await rig.watch.wait(30)
        rig.rank(0)
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(restart())
    assert deaths_of(rig) == []


LAUNCH = """
import os, subprocess, sys, time
from _probing_probe import page
page.open_page()
for rank in ("0", "1"):
    subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1], rank, "20"], env={**os.environ, "RANK": rank})
time.sleep(120)
"""


def test_ranks_that_end_before_their_launcher_were_ended_with_their_job(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun ends its ranks when it is told to end, and lives some seconds longer: no rank outlived another."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.05)
    monkeypatch.setattr(deaths, "TEARDOWN_S", 3600.0)
    launcher = rig.start(LAUNCH, rank_rig.TRAIN)
    assert launcher.stdout is not None
    assert [launcher.stdout.readline() for _ in range(2)] == [b"stopped\n"] * 2

    async def end() -> None:
        await rig.watch.beat()
        for pid in processes.children_of(launcher.pid):
            os.kill(pid, signal.SIGKILL)
        await rig.watch.wait(30)
        await rig.watch.beat()
        launcher.kill()
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(end())
    assert deaths_of(rig) == []


def test_pages_of_the_future_make_no_news_of_every_death(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their processes began before the death, whatever they claim: others died of the same, and one still lives."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.05)
    for number in range(4):
        pid = rig.rank(number).pid
        with (rig.directory / f"p{pid}.page").open("r+b") as page:
            page.seek(layout.H_MONOTONIC_NS * 8)
            page.write((1 << 61).to_bytes(8, "little"))

    async def kill() -> None:
        await rig.watch.beat()
        for process in rig.started[:3]:
            process.kill()
            process.wait()
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(kill())
    assert deaths_of(rig) == [(0, False)]


def test_deaths_are_rows_of_their_users_share(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share that the collector of ended jobs takes from, too; the agent names the job."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.0)
    victim = rig.rank(0)
    rig.rank(1)

    async def kill() -> str:
        await rig.watch.beat()
        while rig.watch._shares.take(os.getuid(), ()) is not None:
            pass
        victim.kill()
        victim.wait()
        await rig.watch.beat()
        await rig.watch.close()
        return rig.self_watch.of("ranks").error or ""

    # On a slow machine the other rank's last sign is late, too.
    assert re.search(r"job 7: [1-9]\d* events not stored", asyncio.run(kill()))
    assert deaths_of(rig) == []


def test_a_user_with_more_ranks_than_places_is_named(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death of a rank without a place is found at the next look."""
    monkeypatch.setattr(deaths, "MAX_WATCHED_OF_ONE", 1)
    monkeypatch.setattr(deaths, "SETTLE_S", 0.0)
    ranks = [rig.rank(0), rig.rank(1), rig.rank(2)]

    async def live() -> str:
        await rig.watch.beat()
        error = rig.self_watch.of("ranks").error
        (job,) = rig.watch._pages.jobs.values()
        (unwatched, *_) = (r.page.pid for r in job.ranks.values() if r.watched is None)
        (process,) = (p for p in ranks if p.pid == unwatched)
        process.kill()
        process.wait()
        await rig.watch.beat()
        await rig.watch.beat()
        await rig.watch.close()
        return error or ""

    assert "job 7: 2 processes are not watched for their end" in asyncio.run(live())
    assert len(deaths_of(rig)) == 1


def test_many_deaths_hide_no_later_one_for_good(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun restarts its ranks for days: at most so many deaths an hour, and what ended the attempt is reported all the same."""
    monkeypatch.setattr(deaths, "SETTLE_S", 0.0)
    monkeypatch.setattr(deaths, "BECAUSE_S", 0.0)
    monkeypatch.setattr(rank_deaths, "MAX_DEATH_EVENTS", 1)
    ranks = [rig.rank(number) for number in range(6)]

    async def kill(number: int) -> None:
        ranks[number].kill()
        ranks[number].wait()
        await rig.watch.beat()

    async def live() -> None:
        await rig.watch.beat()
        await kill(0)
        await kill(1)
        assert deaths_of(rig) == [(0, False)]
        reported_s = rig.watch._pages.jobs[7].deaths_reported_s
        reported_s[0] -= 3600.0
        await kill(2)
        await kill(3)
        assert deaths_of(rig) == [(0, False), (2, False)]
        ranks[4].kill()
        ranks[4].wait()
        job = rig.book.get(7)
        assert job is not None
        rig.taken += await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()

    asyncio.run(live())
    assert deaths_of(rig) == [(0, False), (2, False), (4, False)]
