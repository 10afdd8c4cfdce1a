"""The attempts that the next pass of attribution would judge, by the queries that it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from probing_cluster.attribution.passes import pending
from probing_cluster.core import clock, records
from probing_cluster.db import store as store_module

_LATER = datetime(2100, 1, 1, tzinfo=UTC)


def attempts(store: store_module.Store) -> list[records.JobAttempt]:
    """Ended attempts of any cluster without a current verdict, by end, once what arrived has re-opened its own."""
    store.reopen_for_arrivals()
    return store.attempts_of(pending.keys(pending.read(store, clock.EPOCH, _LATER, unjudged=True)))
