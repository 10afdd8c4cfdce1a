"""Swap search over stored attempts and given stretches."""

from __future__ import annotations

from datetime import timedelta

import fakes
import pytest

from probing_cluster.control_plane.repair import swap_search
from probing_cluster.core import errors, records
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store


@pytest.fixture
def running(store: db_store.Store) -> db_store.Store:
    """Job 7 on four nodes, its ranks at 1.1 s a step."""
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=fakes.NOW - timedelta(hours=2), start_at=fakes.NOW - timedelta(hours=1),
        state="RUNNING", nodes=("n1", "n2", "n3", "n4"), run_key="7",
    )  # fmt: skip
    store.upsert_attempts([attempt])
    ranks = {
        "7:0": {"window": {"index": 3, "total_s": 1.1}},
        "8:0": {"window": {"total_s": 9.0}},
        "7:1": "odd",
    }
    beat = records.AgentHeartbeat(cluster="c", node="n1", at=fakes.NOW, ranks=ranks)
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(heartbeat=beat)
    return store


def test_it_replaces_half_of_the_doubt_and_names_the_node_in_the_end(running: db_store.Store) -> None:
    first = swap_search.search(running, "c", 7, spares=4, good_s=1.0)
    assert first.slow_s == 1.1
    assert len(first.plan.replace) == 2
    # n1 and n2 were replaced and it stayed slow; then n3, and it was quick.
    results = ["n[3-4],s[1-2]=1.1", "n4,s[1-3]=1.0"]
    found = swap_search.search(running, "c", 7, spares=4, good_s=1.0, given=results)
    assert found.plan.suspect[0] == "n3"
    assert "it is n3" in found.text()
    assert "job 7: 1 s a step at last, 1.1 s while slow, 1 s before; 3 stretches known" in found.text()
    assert found.plain()["probabilities"]["n3"] > 0.95


@pytest.mark.parametrize(
    ("job", "results", "error", "words"),
    [
        (9, (), errors.NotFound, "no attempt"),
        (7, ("n1",), errors.UsageError, "HOSTLIST=SECONDS"),
        (7, ("n[1-=2",), errors.UsageError, "HOSTLIST=SECONDS"),
        (7, ("n1=-2",), errors.UsageError, "HOSTLIST=SECONDS"),
        (7, (), errors.UsageError, "before the job slowed"),
    ],
)
def test_what_it_cannot_search_by(
    running: db_store.Store, job: int, results: tuple[str, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        swap_search.search(running, "c", job, spares=1, given=results)
