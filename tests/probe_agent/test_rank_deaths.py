"""Deaths of real processes: which are told, and when."""

from __future__ import annotations

import asyncio
import signal

import rank_rig


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
