"""Ended months as Parquet, once a night, so that Postgres can let them go and figures still reach them.

Before a month may go, it is written again if events of it were stored since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service import turns
from probing_cluster.db import engines, partitions
from probing_cluster.db import store as db_store

SETTLED = timedelta(days=2)
"""How long after its end a month is left alone: spools of dead nodes may still hold events of it."""


def run(service: context.Context) -> str:
    """One night's export; the months written, and those written again."""
    where = service.config.attribution.history_directory
    if not where:
        return ""
    oldest = _oldest(service.store)
    if oldest is None:
        return ""
    from probing_cluster.attribution.history import history

    with turns.take(service, "export") as mine:
        if not mine:
            return ""
        known = set(history.read_manifest(Path(where)).months)
        before = service.clock.now() - SETTLED
        done = history.export(service.store, Path(where), before=before, since=oldest, at=service.clock)
        new = [month for month in done.months if month not in known]
        past = partitions.past_retention(
            service.store.engine, service.config.database.retention_days, service.clock.now()
        )
        again = history.renew(service.store, Path(where), past, at=service.clock)
    parts = [f"exported {', '.join(new)}"] if new else []
    parts += [f"exported again, with late events: {', '.join(again)}"] if again else []
    return "; ".join(parts)


def complete(service: context.Context) -> Callable[[Sequence[str]], set[str]] | None:
    """Chooses the months that may be dropped: the history has their every event. None where no history is kept: age alone decides."""
    where = service.config.attribution.history_directory
    if not where:
        return None
    from probing_cluster.attribution.history import history

    return lambda months: set(months).difference(history.incomplete(service.store, Path(where), months))


def _oldest(store: db_store.Store) -> datetime | None:
    """The end of the first attempt known."""
    with engines.translated(), store.engine.connect() as connection:
        found: datetime | None = connection.scalar(sa.text("SELECT min(end_at) FROM probing.job_attempt"))
    return found


TASK = context.Task(
    name="export",
    meaning="writes ended months as Parquet",
    run=run,
    daily_at=lambda _: "04:30",  # no zone's clocks repeat or skip this hour
)
