"""The database's housekeeping: partitions made ahead, old months dropped once exported."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.database import export
from probing_cluster.core import clock
from probing_cluster.db import partitions

LEAP = timedelta(days=2)
SETTLED_S = 6 * 3600.0
"""A clock that has gone on by more than LEAP since the round before deletes nothing for so long: if it is wrong, somebody sets it meanwhile."""
MARK = "maintenance.at"


@dataclasses.dataclass(kw_only=True)
class _Leap:
    since_s: float | None = None
    """When, by the monotonic clock, the clock was first that far ahead; None while it is not."""


def run(service: context.Context) -> str:
    """One round."""
    delete = _may_delete(service)
    done = partitions.maintain(
        service.store.connection_uri(),
        retention_days=service.config.database.retention_days,
        now=service.clock.now(),
        exported=export.complete(service),
        delete=delete,
    )
    parts = [
        f"{len(names)} partitions {verb}"
        for names, verb in ((done.made, "made"), (done.dropped, "dropped"))
        if names
    ]
    parts += [f"{done.keys_deleted} event keys deleted"] if done.keys_deleted else []
    parts += [] if delete else ["nothing deleted: the clock has just gone on by days"]
    return ", ".join(parts)


def _may_delete(service: context.Context) -> bool:
    """Whether the clock may say what has aged: what a wrong one has deleted does not come back."""
    now, now_s, leap = service.clock.now(), service.clock.monotonic_s(), service.memory(_Leap)
    mark = service.store.recall(MARK)
    if mark is None or now - datetime.fromisoformat(mark) <= LEAP:
        leap.since_s = None
    elif leap.since_s is None:
        leap.since_s = now_s
    if leap.since_s is not None and now_s - leap.since_s < SETTLED_S:
        return False
    service.store.remember(MARK, clock.iso_z(now))
    return True


TASK = context.Task(
    name="maintenance",
    meaning="makes partitions ahead and drops months past retention",
    run=run,
    every_s=lambda _: 3600.0,
)
