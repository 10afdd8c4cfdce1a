"""Nodes by gangs: which nodes work longer in each step than the others of their gang."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import records
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.reports.fleet import fleet_page, fleet_words

NOW = datetime(2026, 10, 1, tzinfo=UTC)


def rank(compute_s: float, index: int = 5) -> dict[str, Any]:
    seconds = {f"{n}_s": 0.0 for n in ("host", "input", "checkpoint", "waiting", "backward")}
    return {"window": {"index": index, "steps": 10, "total_s": 2.0, "compute_s": compute_s, **seconds}}


def test_the_node_that_works_longer_than_its_gang_is_hot(store: db_store.Store) -> None:
    own = {"n1": 1.0, "n2": 1.01, "n3": 1.2, "n4": 0.99}
    for n, (node, seconds) in enumerate(own.items()):
        ranks = {
            f"7:{n}": rank(seconds),
            f"7:{n + 4}": rank(seconds * 0.9),
            "8:0": rank(9.0),
            "x:1": {"window": 3},
        }
        beat = records.AgentHeartbeat(
            cluster="c", node=node, at=NOW, ranks=ranks if n < 3 else {"7:3": rank(seconds)}
        )
        delivery.Delivery(store.connection_uri(), "c", node).deliver(heartbeat=beat)
    figure = fleet.node_pace(store, NOW - timedelta(days=1), NOW + timedelta(days=1)).to_json()
    by_node = {row["node"]: row for row in figure["nodes"]}
    assert 1.18 < by_node["n3"]["job 7"] < 1.21
    assert by_node["n1"]["job 8"] == 1.0
    assert "job 8" in by_node["n4"]
    assert by_node["n4"]["job 8"] is None
    assert fleet_words.sentences("node-pace", figure)[0].startswith("Slowest beside its gang: n3 in job 7")
    page = fleet_page.render("c", {"node-pace": figure}, {"node-pace": "pace"}, made_at=NOW)
    assert "n3, job 7: 19% slower" in page or "n3, job 7: 20% slower" in page
    empty = fleet.node_pace(store, NOW + timedelta(days=1), NOW + timedelta(days=2)).to_json()
    assert "No gang" in fleet_words.sentences("node-pace", empty)[0]


def test_two_clusters_have_two_jobs_of_a_number_and_two_nodes_of_a_name(store: db_store.Store) -> None:
    """Together, as `--all-clusters` asks for them: one's slow node is not the other's, nor are their ranks one gang."""
    for cluster, slowest in (("c", 1.5), ("d", 1.0)):
        for n, seconds in enumerate((1.0, 1.0, slowest), 1):
            beat = records.AgentHeartbeat(
                cluster=cluster, node=f"n{n}", at=NOW, ranks={f"7:{n}": rank(seconds)}
            )
            delivery.Delivery(store.connection_uri(), cluster, f"n{n}").deliver(heartbeat=beat)
    figure = fleet.node_pace(store.of(None), NOW - timedelta(days=1), NOW + timedelta(days=1))
    assert figure.n_gangs == 2
    by_node = {row["node"]: row for row in figure.nodes}
    assert (by_node["c:n3"]["job 7 of c"], by_node["d:n3"]["job 7 of d"]) == (1.5, 1.0)
    assert by_node["d:n3"]["job 7 of c"] is None
