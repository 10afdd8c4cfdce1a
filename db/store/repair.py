"""The store's tests and repairs: results of diagnostics, and the workflow of each drained node."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import errors, records
from probing_cluster.db import engines, plain, rows, tables
from probing_cluster.db.store import base

_I = tables.repair_incident.c
_R = tables.diagnostic_result.c
WITHOUT_RESERVATION = ("queued", "ticket")
"""States of an open repair in which its node lies in no reservation of ours."""


class RepairRows(base.StoreBase):
    """Reads and writes of tests and repairs."""

    def add_results(self, results: Iterable[records.DiagnosticResult]) -> None:
        """Store results; one that is stored already stays as it is."""
        given = [rows.to_row(result) for result in results]
        if given:
            self._execute(pg.insert(tables.diagnostic_result).on_conflict_do_nothing(), given)

    def may_add_results(self) -> bool:
        """Whether this login may store results: asked before nodes are taken for tests."""
        query = sa.select(sa.func.has_table_privilege(str(tables.diagnostic_result), "INSERT"))
        with engines.translated(), self.engine.connect() as connection:
            return bool(connection.execute(query).scalar_one())

    def results(
        self,
        round_id: uuid.UUID | None = None,
        *,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        outcomes: Iterable[str] | None = None,
    ) -> list[records.DiagnosticResult]:
        """Results, oldest first, of the store's cluster."""
        query = (
            sa.select(tables.diagnostic_result).where(self._of(_R.cluster)).order_by(_R.at, _R.node, _R.test)
        )
        for column, value in ((_R.round_id, round_id), (_R.node, node)):
            query = query.where(column == value) if value is not None else query
        query = query.where(_R.at >= since) if since is not None else query
        query = query.where(_R.at < until) if until is not None else query
        if outcomes is not None:
            query = query.where(base.some(_R.outcome, outcomes))
        return self._select(records.DiagnosticResult, query)

    def open_incident(self, incident: records.RepairIncident) -> bool:
        """Record a new repair; False when its node has an open one already."""
        insert = pg.insert(tables.repair_incident).values(rows.to_row(incident)).on_conflict_do_nothing()
        return bool(self._execute(insert))

    def update_incident(self, incident_id: uuid.UUID, **changes: Any) -> records.RepairIncident:
        """Set fields of an open repair; the repair as it is now. Raises NotFound when it is over or was never there."""
        new = {name: plain.plain(value) for name, value in changes.items()}
        update = (
            sa.update(tables.repair_incident)
            .where(_I.incident_id == incident_id, _I.closed_at.is_(None))
            .values(**new)
            .returning(*tables.repair_incident.c)
        )
        with engines.translated(), self.engine.begin() as connection:
            row = connection.execute(update).mappings().first()
        if row is None:
            raise errors.NotFound(f"there is no open repair {incident_id}")
        return rows.from_row(records.RepairIncident, row)

    def incidents(
        self,
        *,
        cluster: str | None = None,
        node: str | None = None,
        open_only: bool = False,
        since: datetime | None = None,
    ) -> list[records.RepairIncident]:
        """Repairs, oldest first; without a cluster, of the store's."""
        query = sa.select(tables.repair_incident).where(self._of(_I.cluster, cluster)).order_by(_I.opened_at)
        query = query.where(_I.node == node) if node is not None else query
        query = query.where(_I.closed_at.is_(None)) if open_only else query
        query = query.where(_I.opened_at >= since) if since is not None else query
        return self._select(records.RepairIncident, query)

    def nodes_under_test(self, cluster: str) -> dict[str, str]:
        """By node the reservation of ours that it is in, of the idle ones that joined as references, too."""
        query = sa.select(tables.repair_incident).where(_I.closed_at.is_(None), _I.cluster == cluster)
        found = self._select(records.RepairIncident, query)
        return {
            node: one.reservation
            for one in found
            if one.state not in WITHOUT_RESERVATION
            for node in (*one.reference_nodes, one.node)
        }
