"""Monthly partitions of `health_event`: made ahead, dropped when old; run by the service's scheduled job.

Rows of a month without a partition wait in the DEFAULT one and are moved when theirs is made.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psycopg
import sqlalchemy as sa

from probing_cluster.core import clock
from probing_cluster.db import engines

MONTHS_AHEAD = 3
KEY_RETENTION_DAYS = 90
"""Least time an event's key is kept, days: longer than any spool can hold an event back."""

_NAME = re.compile(r"health_event_(\d{4})_(\d{2})")
_AGED_KEYS = "DELETE FROM probing.event_key WHERE received_at < :before AND at < :before"
# Rows of a clock gone wrong belong to no month: they go when they were received so long ago.
_AGED_STRAYS = (
    "DELETE FROM probing.health_event_default d USING probing.event_key k "
    "WHERE k.event_id = d.event_id AND k.received_at < :before AND d.at < :before"
)
_AGED = (
    _AGED_STRAYS,
    "DELETE FROM probing.check_result WHERE at < :before",
    "DELETE FROM probing.job_allocation WHERE at < :before",
    "DELETE FROM probing.node_request WHERE expires_at < :before",
    # Each node's delivery removes its own; these are of nodes that have not answered since.
    "DELETE FROM probing.node_answer WHERE made_at < least(:before, now() - interval '10 minutes')",
    "DELETE FROM probing.rejection WHERE day < :before",
    # Quotas are of the current hour: what an agent's role delivered before is looked at by nobody.
    "DELETE FROM probing.intake WHERE hour < greatest(:before, now() - interval '2 days')",
    "DELETE FROM probing.node_clock WHERE to_at < :before",
)


@dataclass(frozen=True, kw_only=True)
class MaintenanceResult:
    """What one run of `maintain` did; months are written 2026-01."""

    made: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    postponed: tuple[str, ...] = ()
    """Months that somebody's open transaction kept us from; the next run tries again."""
    keys_deleted: int = 0


def maintain(
    url: str,
    *,
    retention_days: int,
    now: dt.datetime | None = None,
    exported: Callable[[Sequence[str]], Iterable[str]] | None = None,
    delete: bool = True,
) -> MaintenanceResult:
    """Make the months ahead and, with `delete`, drop those whose every row is older than the retention, and what else has aged.

    `exported` gives those of some months (2026-01) whose every event is elsewhere: given, no other is dropped.
    """
    today = now or clock.SYSTEM.now()
    keep_from = today - dt.timedelta(days=retention_days)
    engine = engines.make(url)
    try:
        with engines.translated():
            wanted = _wanted(engine, today, keep_from)
            old = _past(engine, keep_from) if delete else []
            if exported is not None:
                safe = set(exported([f"{m:%Y-%m}" for m in old])) if old else set()
                old = [m for m in old if f"{m:%Y-%m}" in safe]
            made, late = _change(engine, "SELECT probing.make_month(:month)", wanted)
            dropped, kept = _change(engine, "SELECT probing.drop_month(:month)", old)
            # A key outlives its event, so that nothing kept can come in a second time.
            for statement in _AGED if delete else ():
                _delete(engine, statement, keep_from)
            key_age = min([keep_from, today - dt.timedelta(days=KEY_RETENTION_DAYS), *months(engine)])
            keys = _delete(engine, _AGED_KEYS, key_age) if delete else 0
            return MaintenanceResult(made=made, dropped=dropped, postponed=(*late, *kept), keys_deleted=keys)
    finally:
        engine.dispose()


def past_retention(engine: sa.Engine, retention_days: int, now: dt.datetime) -> list[str]:
    """The months (2026-01) that `maintain` drops, or would if they were exported; oldest first."""
    with engines.translated():
        return [f"{m:%Y-%m}" for m in _past(engine, now - dt.timedelta(days=retention_days))]


def _past(engine: sa.Engine, keep_from: dt.datetime) -> list[dt.datetime]:
    return [m for m in months(engine) if _later(m, 1) <= keep_from]


def months(engine: sa.Engine) -> list[dt.datetime]:
    """The months that have a partition, oldest first."""
    query = sa.text(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'probing.health_event'::regclass ORDER BY c.relname"
    )
    with engine.connect() as connection:
        found = [_NAME.fullmatch(name) for name in connection.scalars(query)]
    return [dt.datetime(int(m[1]), int(m[2]), 1, tzinfo=dt.UTC) for m in found if m]


def _wanted(engine: sa.Engine, today: dt.datetime, keep_from: dt.datetime) -> list[dt.datetime]:
    """The months ahead, and those of rows that wait in the DEFAULT partition."""
    first = today.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    wanted = {_later(first, n) for n in range(MONTHS_AHEAD + 1)}
    waiting = sa.text(
        "SELECT DISTINCT date_trunc('month', at AT TIME ZONE 'UTC') FROM probing.health_event_default "
        "WHERE at >= :since AND at < :until"
    )
    with engine.connect() as connection:
        bounds = {"since": keep_from, "until": _later(first, MONTHS_AHEAD + 1)}
        wanted |= {naive.replace(tzinfo=dt.UTC) for naive in connection.scalars(waiting, bounds)}
    return sorted(wanted)


def _later(month: dt.datetime, n: int) -> dt.datetime:
    index = month.year * 12 + month.month - 1 + n
    return month.replace(year=index // 12, month=index % 12 + 1)


def _change(
    engine: sa.Engine, call: str, wanted: Iterable[dt.datetime]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Call a function of `partitions.sql` per month: the months changed, and those whose lock was not to be had."""
    done, postponed = [], []
    for month in wanted:
        name = f"{month:%Y-%m}"
        try:
            with engine.begin() as connection:
                if connection.scalar(sa.text(call), {"month": month.date()}):
                    done.append(name)
        except sa.exc.OperationalError as exc:
            if not isinstance(exc.orig, psycopg.errors.LockNotAvailable):
                raise
            postponed.append(name)
    return tuple(done), tuple(postponed)


def _delete(engine: sa.Engine, statement: str, before: dt.datetime) -> int:
    with engine.begin() as connection:
        return connection.execute(sa.text(statement), {"before": before}).rowcount
