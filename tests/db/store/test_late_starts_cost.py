"""What a poll of accounting with many new starts costs the database: it grows with the starts, not with their square."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from probing_cluster.core import records
from probing_cluster.db import store as db_store
from probing_cluster.db.store import attempts as store_attempts

FEW, MANY = 50, 400


def visited(plan: dict[str, Any]) -> float:
    """Rows that a plan's steps gave or threw away, all loops together."""
    dropped = sum(v for k, v in plan.items() if k.startswith("Rows Removed"))
    own: float = (plan["Actual Rows"] + dropped) * plan["Actual Loops"]
    return own + sum(visited(step) for step in plan.get("Plans", ()))


def rows_for(store: db_store.Store, n: int, make_attempt: Callable[..., records.JobAttempt]) -> float:
    """Rows visited when `n` starts arrive, each on the node of an attempt that ended, and was judged, in the same hour."""
    base = make_attempt()
    assert base.end_at is not None
    at = base.end_at - timedelta(hours=1)
    ended = [
        make_attempt(job_id=i, run_key=str(i), nodes=(f"n{i}",), submit_at=at, start_at=at, end_at=at)
        for i in range(1, n + 1)
    ]
    new = [
        make_attempt(job_id=n + i, run_key=str(n + i), nodes=(f"n{i}",), submit_at=at, start_at=at, end_at=at)
        for i in range(1, n + 1)
    ]
    with store.engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE probing.job_attempt, probing.arrival"))
    store.upsert_attempts([*ended, *new])
    given = {
        "clusters": [a.cluster for a in new],
        "jobs": [a.job_id for a in new],
        "submits": [a.submit_at for a in new],
        "starts": [a.start_at for a in new],
    }
    with store.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE probing.job_attempt SET judged_at = end_at WHERE job_id <= :n"), {"n": n}
        )
        connection.execute(sa.text("ANALYZE probing.job_attempt"))
        query = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {store_attempts.LATE_STARTS.text}"
        found = connection.execute(sa.text(query), given).scalar_one()
        noted = connection.execute(sa.text("SELECT count(DISTINCT node) FROM probing.arrival")).scalar_one()
    assert noted == n, "every start is evidence for the attempt that ended on its node"
    return visited((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])


def test_a_late_day_of_accounting_costs_what_its_starts_cost(
    store: db_store.Store, make_attempt: Callable[..., records.JobAttempt]
) -> None:
    """Eight times the starts on eight times the nodes: about eight times the rows, not sixty-four times."""
    few = rows_for(store, FEW, make_attempt)
    many = rows_for(store, MANY, make_attempt)
    assert many <= 2 * MANY / FEW * few
