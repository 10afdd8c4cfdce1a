"""When conditions ended is found among what ends them, not among everything the node has said since."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from probing_cluster.attribution.passes import conditions
from probing_cluster.core import records
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store

AT = datetime(2026, 3, 1, tzinfo=UTC)
N_SINCE = 2000

LOST = records.HealthEvent(
    event_id=uuid.UUID(int=1),
    cluster="c",
    node="n1",
    at=AT,
    observed_at=AT,
    kind="xid",
    code="79",
    severity=records.Severity.HIGH,
    source="kernel",
    device="gpu3",
    message="",
)


class Explained:
    """A store that keeps the plans of its statements."""

    def __init__(self, store: db_store.Store) -> None:
        self._store = store
        self.plans: list[dict[str, Any]] = []

    def rows(self, query: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = self._store.rows(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}", given)[0]
        plan = found["QUERY PLAN"]
        self.plans += [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]]
        return self._store.rows(query, given)


def visited(plan: Mapping[str, Any]) -> float:
    """Rows that a plan's steps gave or threw away, all loops together."""
    dropped = sum(v for k, v in plan.items() if k.startswith("Rows Removed"))
    own: float = (plan["Actual Rows"] + dropped) * plan["Actual Loops"]
    return own + sum(visited(step) for step in plan.get("Plans", ()))


def test_what_a_node_says_beside_the_end_of_a_condition_is_not_read(store: db_store.Store) -> None:
    """A node that said two thousand things since its GPU was lost, one of them its restart: about as many rows as ends."""
    later = [
        dataclasses.replace(
            LOST,
            event_id=uuid.UUID(int=2 + i),
            at=AT + timedelta(seconds=1 + i),
            kind="pcie_aer",
            code="corrected",
            severity=records.Severity.INFO,
        )
        for i in range(N_SINCE)
    ]
    booted_at = AT + timedelta(hours=2)
    boot = dataclasses.replace(later[0], event_id=uuid.uuid4(), kind="node_boot", code=None, at=booted_at)
    bulk.load_events(store.url, [LOST, *later, boot])
    with store.engine.begin() as connection:
        connection.execute(sa.text("ANALYZE probing.health_event"))
    explained = Explained(store)
    reader = conditions.ConditionReader(explained)  # type: ignore[arg-type]  # it reads rows, and no more
    found = reader.with_ends("c", [(LOST, True)], AT + timedelta(days=1))
    assert found == {"n1": [(LOST, booted_at)]}
    assert visited(explained.plans[0]) < N_SINCE / 20, explained.plans
