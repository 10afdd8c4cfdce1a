"""The database's housekeeping: partitions made ahead, old months dropped once exported."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.database import export
from probing_cluster.db import partitions


def run(service: context.Context) -> str:
    """One round."""
    done = partitions.maintain(
        service.store.connection_uri(),
        retention_days=service.config.database.retention_days,
        now=service.clock.now(),
        exported=export.complete(service),
    )
    parts = [
        f"{len(names)} partitions {verb}"
        for names, verb in ((done.made, "made"), (done.dropped, "dropped"))
        if names
    ]
    parts += [f"{done.keys_deleted} event keys deleted"] if done.keys_deleted else []
    return ", ".join(parts)


TASK = context.Task(
    name="maintenance",
    meaning="makes partitions ahead and drops months past retention",
    run=run,
    every_s=lambda _: 3600.0,
)
