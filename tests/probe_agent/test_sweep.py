"""When the agent sweeps again."""

from __future__ import annotations

import asyncio
import types
from datetime import UTC, datetime
from typing import Any

from probing_cluster.core import records, settings
from probing_cluster.probe_agent import sweep
from tests.set_clock import SetClock

NOW = datetime(2026, 11, 21, 14, 20, tzinfo=UTC)


def result(name: str, outcome: records.Outcome = records.Outcome.FAIL) -> records.CheckResult:
    return records.CheckResult(
        cluster="c",
        node="n1",
        name=name,
        outcome=outcome,
        severity=records.Severity.HIGH,
        message="m",
        at=NOW,
    )


async def sweeps_wanted(*found: list[records.CheckResult]) -> list[bool]:
    """After each of these sweeps, whether another one is wanted out of turn. The wait before it is nothing here."""
    deaf: Any = types.SimpleNamespace(
        store=lambda _: None, settle=lambda *_: None, read=lambda *_, **__: None, error=""
    )
    config = settings.Settings(policy=settings.PolicySettings(hold_s=-1.0))
    identity: Any = types.SimpleNamespace(node="n1", cluster="c", root="/")
    sweeper = sweep.Sweeper(
        config=config, identity=identity, intake=deaf, polls=deaf, book=deaf, spool=deaf, watch=deaf,
        clock=SetClock(NOW),
    )  # fmt: skip
    wanted = []
    for results in found:
        sweeper._wanted.clear()
        sweeper._take(results, 0.0)
        await asyncio.sleep(0.001)
        wanted.append(sweeper._wanted.is_set())
    return wanted


def test_a_link_or_mount_that_begins_to_fail_is_looked_at_once_more_out_of_turn() -> None:
    """What the service waits for is a second sweep; one that failed before has had it, and other checks need none."""
    link, mount, gpus = result("ib_link"), result("mount_responsive"), result("gpu_count")
    well = result("ib_link", records.Outcome.OK)
    made = asyncio.run(sweeps_wanted([gpus], [link, gpus], [link], [link, mount], [well, mount], [link]))
    assert made == [False, True, False, True, False, True]
