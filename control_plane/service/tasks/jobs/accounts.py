"""Keeps each run's account up to date as its attempts end."""

from __future__ import annotations

from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.service.tasks.jobs import accounting


def run(service: context.Context) -> str:
    """One pass; how many accounts were made."""
    with service.try_lock("accounts") as locked:
        return _made(service) if locked else ""


def _made(service: context.Context) -> str:
    from probing_cluster.attribution.reliability import (
        accounts,  # ADBC's threads, begun before process_memory.keep_small, would each have a heap
    )

    since = service.clock.now() - timedelta(days=service.config.slurm.history_days)
    read_from = accounting.recalled(service, accounting.READ_FROM)
    made = accounts.update(
        service.store,
        service.config.attribution,
        since=since if read_from is None else min(since, datetime.fromisoformat(read_from)),
        at=service.clock,
        between=lambda _: not service.stopping.is_set(),
    )
    if read_from is not None and not service.stopping.is_set():
        accounting.remember(service, accounting.READ_FROM, None)
    return f"{made} run accounts" if made else ""


TASK = context.Task(
    name="accounts",
    meaning="keeps the account of every run's time",
    run=run,
    every_s=lambda config: config.service.attribution_poll_s,
    follows=("attribution",),
)
