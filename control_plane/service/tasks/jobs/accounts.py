"""Keeps each run's account up to date as its attempts end."""

from __future__ import annotations

from datetime import timedelta

from probing_cluster.control_plane import context


def run(service: context.Context) -> str:
    """One pass; how many accounts were made."""
    with service.try_lock("accounts") as locked:
        return _made(service) if locked else ""


def _made(service: context.Context) -> str:
    from probing_cluster.attribution.reliability import (
        accounts,  # ADBC's threads, begun before process_memory.keep_small, would each have a heap
    )

    made = accounts.update(
        service.store,
        service.config.attribution,
        since=service.clock.now() - timedelta(days=service.config.slurm.history_days),
        at=service.clock,
        between=lambda _: not service.stopping.is_set(),
    )
    return f"{made} run accounts" if made else ""


TASK = context.Task(
    name="accounts",
    meaning="keeps the account of every run's time",
    run=run,
    every_s=lambda config: config.service.attribution_poll_s,
    follows=("attribution",),
)
