"""What late evidence costs the database, many new starts or many nodes with events: it grows with what came, not with its square."""

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


def arrivals_visited(
    store: db_store.Store, n: int, make_attempt: Callable[..., records.JobAttempt], make_verdict: Any
) -> float:
    """Rows visited when events of `n` nodes arrive, each with a judged attempt that ended on it then."""
    ended = [make_attempt(job_id=i, run_key=str(i), nodes=(f"n{i}",)) for i in range(1, n + 1)]
    with store.engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE probing.job_attempt, probing.arrival, probing.verdict"))
    store.upsert_attempts(ended)
    store.save_verdicts([make_verdict(a, node=a.nodes[0]) for a in ended])
    with store.engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO probing.arrival (cluster, node, first_at, last_at, n_events)"
                " SELECT cluster, nodes[1], end_at, end_at, 1 FROM probing.job_attempt"
            )
        )
        connection.execute(sa.text("ANALYZE probing.job_attempt, probing.verdict, probing.arrival"))
        ids = connection.execute(sa.text("SELECT array_agg(arrival_id) FROM probing.arrival")).scalar_one()
        query = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {store_attempts.REOPEN.text}"
        found = connection.execute(sa.text(query), {"arrivals": ids}).scalar_one()
        left = "SELECT count(*) FROM probing.job_attempt WHERE judged_at IS NOT NULL"
        assert connection.execute(sa.text(left)).scalar_one() == 0, "every attempt is to be judged again"
    return visited((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])


def test_arrivals_of_many_nodes_cost_what_they_are(
    store: db_store.Store, make_attempt: Callable[..., records.JobAttempt], make_verdict: Any
) -> None:
    """Eight times the nodes with an event: about eight times the rows, not sixty-four times."""
    few = arrivals_visited(store, FEW, make_attempt, make_verdict)
    many = arrivals_visited(store, MANY, make_attempt, make_verdict)
    assert many <= 2 * MANY / FEW * few
