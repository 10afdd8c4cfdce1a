"""What the heartbeat tells of ranks."""

from __future__ import annotations

import asyncio

import rank_rig

from probing_cluster.attribution.gang import slow


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
