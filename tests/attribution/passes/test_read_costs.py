"""The queries of a pass about a node's days read only the few events that can matter, not all of the node's."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from probing_cluster.attribution.passes import conditions, fetch
from probing_cluster.core import records
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store
from tests.db.store.test_late_evidence_cost import visited

AT = datetime(2026, 3, 1, tzinfo=UTC)
N_EVENTS = 2000

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


def corrected_errors(node_at: datetime) -> list[records.HealthEvent]:
    """Two thousand corrected errors on the node, a second apart from then on."""
    return [
        dataclasses.replace(
            LOST,
            event_id=uuid.UUID(int=2 + i),
            at=node_at + timedelta(seconds=1 + i),
            kind="pcie_aer",
            code="corrected",
            severity=records.Severity.INFO,
        )
        for i in range(N_EVENTS)
    ]


def loaded(store: db_store.Store, events: Sequence[records.HealthEvent]) -> Explained:
    bulk.load_events(store.url, events)
    with store.engine.begin() as connection:
        connection.execute(sa.text("ANALYZE probing.health_event"))
    return Explained(store)


def test_what_a_node_says_beside_the_end_of_a_condition_is_not_read(store: db_store.Store) -> None:
    """A node that said two thousand things since its GPU was lost, one of them its restart: about as many rows as ends."""
    booted_at = AT + timedelta(hours=2)
    later = corrected_errors(AT)
    boot = dataclasses.replace(later[0], event_id=uuid.uuid4(), kind="node_boot", code=None, at=booted_at)
    explained = loaded(store, [LOST, *later, boot])
    reader = conditions.ConditionReader(explained)  # type: ignore[arg-type]  # it reads rows, and no more
    found = reader.with_ends("c", [(LOST, True)], AT + timedelta(days=1))
    assert found == {"n1": [(LOST, booted_at)]}
    assert visited(explained.plans[0]) < N_EVENTS / 20, explained.plans


def test_of_the_day_before_a_window_only_what_is_high_or_goes_on_is_read(store: db_store.Store) -> None:
    """Of two thousand things of the day before, the lost GPU and the line that came again in the window are read."""
    before = corrected_errors(AT)
    opens_at = AT + timedelta(hours=2)
    again = dataclasses.replace(before[0], event_id=uuid.uuid4(), last_at=opens_at + timedelta(seconds=1))
    inside = dataclasses.replace(before[0], event_id=uuid.uuid4(), at=opens_at)
    explained = loaded(store, [LOST, *before, again, inside])
    found = explained.rows(
        (Path(fetch.__file__).parent / "sql" / "case_events.sql").read_text("utf-8"),
        {
            "cluster": "c",
            "keys": [0],
            "nodes": ["n1"],
            "froms": [opens_at],
            "tos": [opens_at + timedelta(minutes=15)],
        },
    )
    assert [row["event_id"] for row in found] == [e.event_id for e in (LOST, again, inside)]
    assert visited(explained.plans[0]) < N_EVENTS / 20, explained.plans
