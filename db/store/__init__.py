"""The control plane's reads and writes: records in, records out.

`Store` is one object over six parts: attempts (`attempts`), why they ended (`verdicts`),
what nodes delivered (`events`), decisions and their audit (`actions`), tests and repairs (`repair`),
what the lemon nights found (`lemon_scores`).

A database may hold several clusters. A store is of one of them or of all (`StoreBase.of`), and so is each of its reads
that is given no `cluster` of its own.
"""

from __future__ import annotations

from typing import Self

from probing_cluster.core import settings
from probing_cluster.db import engines
from probing_cluster.db.store import actions, attempts, events, lemon_scores, repair, verdicts


class Store(
    attempts.AttemptRows,
    verdicts.VerdictRows,
    events.EventRows,
    actions.ActionRows,
    repair.RepairRows,
    lemon_scores.LemonRows,
):
    """The database as the control plane sees it; a context manager that gives its connections back."""

    @classmethod
    def open(
        cls,
        where: settings.Settings | settings.DatabaseSettings | str,
        *,
        upgrade: bool = False,
        max_overflow: int = 2,
    ) -> Self:
        """The store of a URL, for all clusters, or of the settings, for theirs (starting the embedded server where they name none).

        With `upgrade` the database is made where there is none, and the schema brought to this version. Raises DatabaseUnavailable.
        """
        url = engines.url_of(where, create=upgrade)
        if upgrade:
            from probing_cluster.db import migrate  # Alembic's import costs readers a good part of a second

            migrate.upgrade(url)
        database = where.database if isinstance(where, settings.Settings) else where
        pool_size = database.pool_size if isinstance(database, settings.DatabaseSettings) else 8
        cluster = where.cluster.name if isinstance(where, settings.Settings) else None
        return cls(url, cluster=cluster, pool_size=pool_size, max_overflow=max_overflow)

    def connection_uri(self) -> str:
        """The URL for drivers that connect by themselves (ADBC, psycopg, psql)."""
        return self.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
