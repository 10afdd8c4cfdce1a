"""Starts that several exports show: each is kept once, under one submit time, and a job's are counted together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta

from probing_cluster.core import errors, records
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store


def under_known_submits(
    store: db_store.Store, attempts: Sequence[records.JobAttempt], *, n_exports: int
) -> tuple[list[records.JobAttempt], int]:
    """The attempts, and of how many the submit time was changed: of a start given once with Submit and once without it is the one that came first."""
    made = list(attempts)
    known: dict[int, datetime] = {}
    for first in range(0, len(made), bulk.BATCH_ROWS):
        part = store.known_submits(made[first : first + bulk.BATCH_ROWS])
        known |= {first + n: submit_at for n, submit_at in part.items()}
    if n_exports > 1:
        first_of = {(a.cluster, a.job_id, a.start_at): a.submit_at for a in reversed(made)}
        for n, (one, submit_at) in enumerate((a, first_of[a.cluster, a.job_id, a.start_at]) for a in made):
            if submit_at != one.submit_at and one.start_at in (submit_at, one.submit_at):
                known.setdefault(n, submit_at)
    for n, submit_at in known.items():
        made[n] = dataclasses.replace(made[n], submit_at=submit_at)
    return made, len(known)


def require_same_zone(store: db_store.Store, attempts: Sequence[records.JobAttempt]) -> None:
    """Raises MalformedInput where a start is stored already as of another time zone: each job would be there twice."""
    for first in range(0, len(attempts), bulk.BATCH_ROWS):
        if found := store.shifted_start(attempts[first : first + bulk.BATCH_ROWS]):
            attempt, ahead = found
            hours = f"{abs(ahead) / timedelta(hours=1):g} h {'later' if ahead > timedelta() else 'earlier'}"
            raise errors.MalformedInput(
                f"job {attempt.ref} is stored already with all its times {hours}: these or those were read in a wrong time zone; name the right one"
                " with --timezone, or import into a new database if it was those"
            )


def count(store: db_store.Store, attempts: Sequence[records.JobAttempt]) -> None:
    """Number the starts of the jobs of stored attempts; every export counts from the first start that it shows."""
    for first in range(0, len(attempts), bulk.BATCH_ROWS):
        store.count_starts(attempts[first : first + bulk.BATCH_ROWS])
