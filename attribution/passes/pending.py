"""Ended attempts that get a verdict, as columns: of a span, a slice or a day."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import co_residency, judge
from probing_cluster.core import clock, records
from probing_cluster.db import store

BATCH = 2000
"""Most attempts given to the judge at once; bounds memory."""
SLICE = 20_000
"""Number of ended attempts read at once, about; bounds memory."""
_MOST = 1 << 62
_DAY_US = 86_400_000_000
_SQL = Path(__file__).parent / "sql"


def read(
    source: store.Store, since: datetime, until: datetime, limit: int | None = None, *, unjudged: bool = False
) -> pa.Table:
    """Attempts that started, ended in the span and get a verdict, by end; columns of `sql/open_attempts.sql`."""
    query = (_SQL / "open_attempts.sql").read_text("utf-8")
    return source.arrow(query, unjudged, since, until, limit or _MOST, sorted(judge.JUDGED_STATES))


def first_end(source: store.Store, since: datetime, until: datetime, *, unjudged: bool) -> datetime | None:
    """The first end in the span of an attempt that gets a verdict; None if there is none."""
    found = read(source, since, until, 1, unjudged=unjudged)
    return co_residency.instants(found["end_at"])[0] if found.num_rows else None


def read_slice(
    source: store.Store, since: datetime, until: datetime, *, unjudged: bool
) -> tuple[pa.Table, datetime]:
    """The attempts that ended from `since` on, within its day (UTC) and about SLICE at most; and the end of the span they fill."""
    midnight = since.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    until = min(until, midnight)
    found = read(source, since, until, SLICE, unjudged=unjudged)
    if found.num_rows < SLICE:
        return found, until
    # Attempts that ended at one instant stay together.
    last = last_end(found)
    if last > since:
        return found.filter(pc.less(found["end_at"], pa.scalar(last, found["end_at"].type))), last
    return read(source, since, since + clock.ONE_US, unjudged=unjudged), since + clock.ONE_US


def last_end(attempts: pa.Table) -> datetime:
    """The latest end among the attempts."""
    return clock.from_us(int(co_residency.microseconds(attempts["end_at"]).max()))


def keys(attempts: pa.Table) -> list[cases.Key]:
    """The attempts' keys."""
    submits = [at for at in co_residency.instants(attempts["submit_at"]) if at is not None]
    return list(zip(attempts["cluster"].to_pylist(), attempts["job_id"].to_pylist(), submits, strict=True))


def by_day(attempts: pa.Table) -> Iterator[pa.Table]:
    """The rows by cluster and by day (UTC) of their end."""
    day = co_residency.microseconds(attempts["end_at"]) // _DAY_US
    for cluster in sorted(set(attempts["cluster"].to_pylist())):
        mine = np.asarray(pc.equal(attempts["cluster"], cluster), np.bool_)
        for one in np.unique(day[mine]):
            yield attempts.filter(pa.array(mine & (day == one)))


def of_jobs(
    source: store.Store,
    since: datetime | None,
    until: datetime | None,
    job_ids: Iterable[int],
    settled: datetime,
) -> list[records.JobAttempt]:
    """The ended attempts of some jobs that get a verdict, within the span if one is given, by end."""
    found = source.attempts(
        job_ids=job_ids, since=since, until=until, ended=True, states=sorted(judge.JUDGED_STATES)
    )
    mine = [
        (a.end_at, a.job_id, a.submit_at, a)
        for a in found
        if a.end_at is not None
        and a.end_at <= settled
        and (since is None or a.end_at >= since)
        and (until is None or a.end_at < until)
    ]
    return [a for *_, a in sorted(mine, key=lambda m: m[:3])]


def batches(
    attempts: Sequence[records.JobAttempt], waits: Callable[[records.JobAttempt], bool]
) -> Iterator[Sequence[records.JobAttempt]]:
    """Batches of at most BATCH attempts; those that wait for others' verdicts are in batches of their own."""
    for _, same in itertools.groupby(attempts, key=waits):
        mine = list(same)
        for at in range(0, len(mine), BATCH):
            yield mine[at : at + BATCH]
