"""The store gives back the records it was given."""

from __future__ import annotations

from datetime import UTC, datetime

from probing_cluster.core import records
from probing_cluster.db import store as store_module


def test_attempt_round_trip(store: store_module.Store) -> None:
    """An attempt read back equals the one stored."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    attempt = records.JobAttempt(
        cluster="c", job_id=1, submit_at=at, state="FAILED", nodes=("n1", "n2"), gpus={"n1": ("a", "b")}
    )
    store.upsert_attempts([attempt])
    assert store.attempts(job_ids=[1]) == [attempt]
