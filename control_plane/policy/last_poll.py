"""Whether `probing-ctl serve` is at work, by when it last read the accounting: it does so every few seconds."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from probing_cluster.core import settings, vocabulary

if TYPE_CHECKING:  # the command line is there before the database's libraries are
    from probing_cluster.db import store as db_store

LATE_S = 20.0
"""Where the service is known to run, something keeps it waiting if accounting was read longer ago, seconds."""


def at(store: db_store.Store, cluster: str) -> datetime | None:
    """When the cluster's accounting was last read; None when it never was."""
    found = store.recall(vocabulary.key_of(vocabulary.ACCOUNTING_READ, cluster))
    return datetime.fromisoformat(found) if isinstance(found, str) else None


def stale(
    read_at: datetime | None, now: datetime, config: settings.Settings, serves: bool | None = None
) -> str:
    """What is wrong with that, as a sentence's part; empty while the service is at work.

    `serves`: whether the service answers on its socket, where that is known (`reports.asking.door.serves`).
    """
    last = "never read" if read_at is None else f"last read {read_at:%Y-%m-%d %H:%M:%S}Z"
    if serves is False:
        return f"probing-ctl serve does not answer on {config.service.socket}, and accounting was {last}"
    limit_s = max(LATE_S if serves else vocabulary.STALE_S, 3 * config.service.accounting_poll_s)
    if read_at is not None and (now - read_at).total_seconds() <= limit_s:
        return ""
    if serves:
        return f"accounting was {last}, though probing-ctl serve runs: Slurm (slurmdbd, slurmctld) or the database may keep it waiting"
    return f"accounting was {last}, so probing-ctl serve may not run"
