"""Sessions of agents, dashboards and operators that last too long, or keep the service waiting, are ended."""

from __future__ import annotations

import logging
from collections import Counter

import sqlalchemy as sa

from probing_cluster.control_plane import context
from probing_cluster.core import errors
from probing_cluster.db import engines

LOG = logging.getLogger("probing.sessions")
LIMITS_S = {"p_agent_s": 120.0, "p_reader_s": 300.0, "p_operator_s": 900.0, "p_blocking_s": 30.0}
"""How long a transaction of each group may last, and how long the service waits for one of theirs."""
_END = sa.text("SELECT * FROM probing.end_long_work(:p_agent_s, :p_reader_s, :p_operator_s, :p_blocking_s)")


def run(service: context.Context) -> str:
    """One look; whose sessions were ended."""
    try:
        with engines.translated(), service.store.engine.begin() as connection:
            ended = [dict(row) for row in connection.execute(_END, LIMITS_S).mappings()]
    except errors.NotPermitted as exc:
        raise errors.NotPermitted(
            f"{exc}; the database's superuser must GRANT pg_signal_backend, pg_read_all_stats to its owner"
        ) from exc
    for row in ended:
        LOG.warning("session ended", extra={"fields": row})
    counts = Counter(f"{row['role_name']} ({row['why']})" for row in ended)
    return ", ".join(f"{n} sessions of {role} ended" for role, n in sorted(counts.items()))


TASK = context.Task(
    name="sessions",
    meaning="ends sessions of agents, dashboards and operators that last too long",
    run=run,
    every_s=lambda _: 15.0,
)
