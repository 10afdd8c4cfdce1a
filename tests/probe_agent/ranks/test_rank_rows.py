"""What the heartbeat tells of ranks."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import rank_rig

from probing_cluster.attribution.gang import slow
from probing_cluster.probe_agent.ranks import rank_rows, ranks


def test_rows_for_the_heartbeat_tell_phase_steps_and_pace(rig: rank_rig.Rig) -> None:
    """One bounded row per rank: how far, doing what, and the medians of its last window of steps."""
    rig.rank(0, steps=40)
    rig.rank(1, steps=3)

    async def look() -> dict[str, dict[str, object]]:
        await rig.watch.beat()
        rows = rig.watch.rows()
        await rig.watch.close()
        return rows

    rows = asyncio.run(look())
    assert set(rows) == {"7:0", "7:1"}
    first = rows["7:0"]
    assert (first["alive"], first["phase"], first["steps"], first["world_size"]) == (True, "training", 40, 2)
    window = slow.PaceWindow.from_row(first["window"])
    assert window is not None
    assert (window.index, window.steps) == (1, 16)
    assert window.total_s >= window.compute_s >= 0.005
    assert "window" not in rows["7:1"]
    assert len(str(first)) < 600


def test_many_ranks_of_one_user_hide_no_rank_of_another(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat has room for some: users take turns."""
    monkeypatch.setattr(rank_rows, "MAX_ROWS", 4)
    rig.rank(0)

    async def look() -> ranks.WatchedJob:
        await rig.watch.beat()
        (watched,) = rig.watch._pages.jobs.values()
        await rig.watch.close()
        return watched

    watched = asyncio.run(look())
    (rank,) = watched.ranks.values()

    def of(uid: int, count: int) -> ranks.WatchedJob:
        numbered = (
            dataclasses.replace(rank, page=dataclasses.replace(rank.page, rank=number))
            for number in range(count)
        )
        job = dataclasses.replace(watched.job, uid=uid)
        return dataclasses.replace(watched, job=job, ranks={str(r.page.rank): r for r in numbered})

    rows = rank_rows.rows({1: of(1000, 3), 2: of(1000, 3), 3: of(1001, 2)}, 0)
    assert set(rows) == {"1:0", "1:1", "3:0", "3:1"}
