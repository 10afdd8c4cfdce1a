"""The store's events, heartbeats, checks and allocations: what the nodes said."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import records
from probing_cluster.db import engines, tables
from probing_cluster.db.store import base

_E = tables.health_event.c
_SEVERITIES = list(records.Severity)
_IDS_AT_ONCE = 200
_SILENCES = (
    "SELECT node, silent_s FROM ops.agent_health WHERE CAST(:cluster AS text) IS NULL OR cluster = :cluster"
)
_SERVER_UP = (
    "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::double precision AS up_s"
)
_LISTEN = """
INSERT INTO probing.state (key, value) VALUES (:key, to_jsonb(clock_timestamp() + make_interval(secs => :after_s)))
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = now()
"""
_ON = """
SELECT e.*
FROM unnest(CAST(:nodes AS text[]), CAST(:sinces AS timestamptz[])) AS g(node, since)
CROSS JOIN LATERAL (
    SELECT * FROM probing.health_event x
    WHERE x.node = g.node AND x.at >= g.since AND (CAST(:cluster AS text) IS NULL OR x.cluster = :cluster)
) e
ORDER BY e.at, e.event_id
"""
_CORRECT = sa.text((Path(__file__).parent / "correct_times.sql").read_text(encoding="utf-8"))
_CORRECTED = "SELECT CAST(value #>> '{}' AS timestamptz) AS at FROM probing.state WHERE key = :key"
_LOCK = """
INSERT INTO probing.state (key, value) VALUES (:key, to_jsonb(now()))
ON CONFLICT (key) DO UPDATE SET updated_at = now()
"""
_DONE = "UPDATE probing.state SET value = to_jsonb(now()) WHERE key = :key"
_OVERLAP = timedelta(minutes=1)
"""A span that was extended just before the last correction may have been extended by a transaction that it could not see."""
_BACK = timedelta(hours=1)
"""A clock counts as behind at most so long after its first heartbeat; its events from then on are corrected."""


class EventRows(base.StoreBase):
    """Reads of what agents delivered. `probing.deliver` writes it; `correct_times` corrects it."""

    def events(
        self,
        nodes: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        job_id: int | None = None,
        job_ids: Iterable[int] | None = None,
        kinds: Iterable[str] | None = None,
        min_severity: records.Severity | str | None = None,
        cluster: str | None = None,
        limit: int | None = None,
    ) -> list[records.HealthEvent]:
        """Events with since <= at < until, oldest first. Without a cluster, of the store's."""
        query = (
            sa.select(tables.health_event)
            .where(self._of(_E.cluster, cluster))
            .order_by(_E.at, _E.event_id)
            .limit(limit)
        )
        if nodes is not None:
            query = query.where(base.some(_E.node, nodes))
        if job_ids is not None:
            query = query.where(base.some(_E.job_id, job_ids))
        if kinds is not None:
            query = query.where(base.some(_E.kind, kinds))
        if min_severity is not None:
            worse = _SEVERITIES[_SEVERITIES.index(records.Severity(min_severity)) :]
            # A single severity is written as an equality, which the partial index on high ones answers.
            query = query.where(
                _E.severity == sa.literal_column(f"'{worse[0]}'")
                if len(worse) == 1
                else _E.severity.in_(worse)
            )
        query = query.where(_E.job_id == job_id) if job_id is not None else query
        query = query.where(_E.at >= since) if since is not None else query
        query = query.where(_E.at < until) if until is not None else query
        return self._select(records.HealthEvent, query)

    def events_on(self, since: Mapping[str, datetime]) -> list[records.HealthEvent]:
        """Every event on some nodes, of each node since an instant of its own; oldest first."""
        given = {"nodes": list(since), "sinces": list(since.values()), "cluster": self.cluster}
        return self.readable(records.HealthEvent, self.rows(_ON, given)) if since else []

    def latest_of_job(
        self, job_id: int, kind: str, since: datetime, *, holding: str = "$", cluster: str | None = None
    ) -> list[records.HealthEvent]:
        """The newest event of this kind and job that each node reported since then, by node. Without a cluster, of the store's.

        Of a node that reported some whose detail holds something at a JSON path (`holding`), the newest of those.
        """
        holds = sa.func.jsonb_path_exists(_E.detail, sa.cast(holding, pg.JSONPATH))
        number = sa.func.row_number().over(
            partition_by=(_E.cluster, _E.node), order_by=(holds.desc(), _E.at.desc(), _E.event_id)
        )
        numbered = (
            sa.select(tables.health_event, number.label("number"))
            .where(self._of(_E.cluster, cluster), _E.job_id == job_id, _E.kind == kind, _E.at >= since)
            .subquery()
        )
        query = sa.select(numbered).where(numbered.c.number == 1).order_by(numbered.c.node)
        return self._select(records.HealthEvent, query)

    def events_by_id(self, ids: Iterable[uuid.UUID]) -> list[records.HealthEvent]:
        """The events with these ids that are still kept, oldest first."""
        wanted = list(ids)
        found: list[records.HealthEvent] = []
        for low in range(0, len(wanted), _IDS_AT_ONCE):
            some = wanted[low : low + _IDS_AT_ONCE]
            k = tables.event_key.c
            query = sa.select(k.at).where(base.some(k.event_id, some))
            times = self._mappings(query)
            # By time the few partitions and page ranges are found; the id alone is in no partition's index.
            when = base.some(_E.at, {row["at"] for row in times})
            query = sa.select(tables.health_event).where(when, base.some(_E.event_id, some))
            found += self._select(records.HealthEvent, query)
        return sorted(found, key=lambda event: (event.at, event.event_id))

    def correct_times(self, cluster: str, spans: Sequence[tuple[str, datetime, datetime, float]]) -> int:
        """Gives events of some nodes the times of the server's clock, each once; how many.

        A span is a node, the time in which its heartbeats showed its clock to be off (by the server's), and the seconds by which it
        was ahead. Spans that ended before the last call are left out.
        """
        key = f"corrected {cluster}"
        before = next((row["at"] for row in self.rows(_CORRECTED, {"key": key})), None)
        due = [span for span in spans if before is None or span[2] >= before - _OVERLAP]
        if not due:
            return 0
        nodes, froms, tos, aheads = (list(column) for column in zip(*due, strict=True))
        since = "-infinity" if before is None else before - _BACK
        given = {
            "cluster": cluster,
            "nodes": nodes,
            "froms": froms,
            "tos": tos,
            "aheads": aheads,
            "since": since,
        }
        with engines.translated(), self.engine.begin() as connection:
            # One at a time: of two, the second would find rows that have moved to another partition.
            connection.execute(sa.text(_LOCK), {"key": key})
            n_events: int = connection.execute(_CORRECT, given).scalar_one()
            connection.execute(sa.text(_DONE), {"key": key})
        return n_events

    def heartbeats(
        self,
        nodes: Iterable[str] | None = None,
        *,
        cluster: str | None = None,
        job_id: int | None = None,
        with_ranks: bool = False,
        with_sources: bool = False,
    ) -> list[records.AgentHeartbeat]:
        """The latest state of every agent (or of those with a job), by node name; without a cluster, of the store's.

        `ranks` and `sources` are left empty unless asked for: they are most of the row, and few need them.
        """
        h = tables.agent_heartbeat.c
        empty = {name for name, wanted in (("ranks", with_ranks), ("sources", with_sources)) if not wanted}
        columns = [
            sa.cast(sa.literal_column("'{}'"), pg.JSONB).label(c.name) if c.name in empty else c for c in h
        ]
        query = sa.select(*columns).where(self._of(h.cluster, cluster), base.some(h.node, nodes))
        query = query.order_by(h.cluster, h.node)
        if job_id is not None:
            query = query.where(h.jobs.contains([job_id]))
        return self._select(records.AgentHeartbeat, query)

    def heartbeat_ages_s(self, *, cluster: str | None = None) -> dict[str, float]:
        """Node to seconds since its agent was last heard, both by the server's clock; without a cluster, of the store's."""
        h = tables.agent_heartbeat.c
        age: sa.ColumnElement[float] = sa.func.extract(
            "epoch", sa.func.clock_timestamp() - h.received_at
        ).cast(sa.Double())
        return dict(self._rows(sa.select(h.node, age).where(self._of(h.cluster, cluster))))

    def silences_s(self, *, cluster: str | None = None) -> dict[str, float]:
        """Node to seconds for which its agent could have been heard and was not: its age, or less after the database was away."""
        return {
            row["node"]: row["silent_s"] for row in self.rows(_SILENCES, {"cluster": cluster or self.cluster})
        }

    def server_up_s(self) -> float:
        """Seconds since the database's server was started."""
        (row,) = self.rows(_SERVER_UP, {})
        return float(row["up_s"])

    def listen_anew(self, cluster: str, after_s: float) -> None:
        """Agents' silence counts from `after_s` seconds from now on, for everybody who asks."""
        self._execute(sa.text(_LISTEN).bindparams(key=f"listening {cluster}", after_s=after_s))

    def checks(self, node: str | None = None, name: str | None = None) -> list[records.CheckResult]:
        """The latest result of every check on every node of the store's cluster, or of those named."""
        n = tables.check_now.c
        query = sa.select(tables.check_now).where(self._of(n.cluster)).order_by(n.node, n.name)
        query = query.where(n.name == name) if name is not None else query
        return self._select(records.CheckResult, query.where(n.node == node) if node is not None else query)

    def allocations(
        self,
        job_id: int | None = None,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        job_ids: Iterable[int] | None = None,
        *,
        cluster: str | None = None,
    ) -> list[records.JobAllocation]:
        """GPU allocations as the Prologs saw them, by time. Without a cluster, of the store's."""
        a = tables.job_allocation.c
        query = sa.select(tables.job_allocation).where(self._of(a.cluster, cluster)).order_by(a.at, a.node)
        query = query.where(base.some(a.job_id, job_ids)) if job_ids is not None else query
        query = query.where(a.job_id == job_id) if job_id is not None else query
        query = query.where(a.node == node) if node is not None else query
        query = query.where(a.at >= since) if since is not None else query
        return self._select(records.JobAllocation, query.where(a.at < until) if until is not None else query)

    def _rows(self, query: sa.Select[Any]) -> list[tuple[Any, ...]]:
        with engines.translated(), self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(query)]
