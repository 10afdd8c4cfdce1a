"""Where each run's time went, kept up to date as its attempts end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from probing_cluster.attribution import accounts, run_account
from probing_cluster.control_plane import context
from probing_cluster.core import clock, records, settings
from probing_cluster.db import engines
from probing_cluster.db import store as db_store

STALE = sa.text((Path(__file__).parents[1] / "sql" / "stale_runs.sql").read_text(encoding="utf-8"))
_REFRESH = timedelta(minutes=5)
"""How old the account of a run that still goes on may get."""
_TOLD_AFTER = timedelta(hours=2)
"""How long after a run's end its nodes' last words still change its account."""
_MOST = 500


def run(service: context.Context) -> str:
    """One pass; how many accounts were made."""
    now = service.clock.now()
    since = now - timedelta(days=service.config.slurm.history_days)
    made = update(service.store, service.config.attribution, since=since, at=service.clock)
    return f"{made} run accounts" if made else ""


def update(
    store: db_store.Store,
    config: settings.AttributionSettings,
    *,
    since: object,
    at: clock.Clock = clock.SYSTEM,
    most: int = _MOST,
) -> int:
    """Make the accounts that are missing or stale; how many."""
    given = {
        "since": since,
        "refresh_before": at.now() - _REFRESH,
        "told_after": at.now() - _TOLD_AFTER,
        "most": most,
    }
    with engines.translated(), store.engine.connect() as connection:
        keys = [tuple(row) for row in connection.execute(STALE, given)]
    made = [a for key in keys if (a := _account(store, config, key, at)) is not None]
    store.save_run_accounts(made)
    return len(made)


def _account(
    store: db_store.Store, config: settings.AttributionSettings, key: Iterable[str], at: clock.Clock
) -> records.RunAccount | None:
    cluster, user, run_key = key
    attempts = store.attempts(cluster=cluster, user=user, run_key=run_key)
    kinds = (accounts.FIRST_STEP, accounts.LAST_STEP, accounts.CHECKPOINT)
    told = [
        e for job_id in sorted({a.job_id for a in attempts}) for e in store.events(job_id=job_id, kinds=kinds)
    ]
    return run_account.account(
        attempts,
        now=at.now(),
        progress=accounts.progress(attempts, told),
        assume=accounts.assumptions(config),
    )


TASK = context.Task(
    name="accounts",
    meaning="keeps the account of every run's time",
    run=run,
    every_s=lambda config: config.service.attribution_poll_s,
)
