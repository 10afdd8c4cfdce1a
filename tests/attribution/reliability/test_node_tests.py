"""Nodes by tests: which are slower than their model, which failed, which drift."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta

from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import records
from probing_cluster.db import store as db_store
from probing_cluster.reports.fleet import fleet_page, fleet_words

START = datetime(2026, 10, 1, tzinfo=UTC)


def test_the_map_and_the_drift(store: db_store.Store) -> None:
    draw = random.Random(3)
    rows = []
    for day in range(24):
        for node, level in (("n1", 1.0), ("n2", 1.0), ("n3", 1.0 if day < 12 else 1.06)):
            rows.append(
                records.DiagnosticResult(
                    result_id=uuid.uuid4(), cluster="c", round_id=uuid.uuid4(), node=node, test="gemm", unit="s", model="m", version="1",
                    outcome=records.Outcome.OK, measured=level * draw.gauss(1, 0.005), at=START + timedelta(days=day), device="cpu",
                )
            )  # fmt: skip
    failed = records.DiagnosticResult(
        result_id=uuid.uuid4(), cluster="c", round_id=uuid.uuid4(), node="n2", test="disk", outcome=records.Outcome.FAIL,
        message="x", at=START + timedelta(days=3),
    )  # fmt: skip
    store.add_results([*rows, failed])
    found = fleet.node_tests(store, START, START + timedelta(days=30))
    by_node = {row["node"]: row for row in found.nodes}
    assert 1.04 < by_node["n3"]["gemm"] < 1.08
    assert by_node["n2"]["disk"] == "fail"
    (drift,) = found.drifts
    assert (drift.node, drift.worse, abs((drift.at - START).days - 12) <= 1) == ("n3", True, True)
    text = " ".join(fleet_words.sentences("node-tests", found.to_json()))
    assert "n3 changed most: gemm" in text
    nothing = fleet.node_tests(store, START - timedelta(days=9), START).to_json()
    assert fleet_words.sentences("node-tests", nothing) == ["No node was tested."]
    page = fleet_page.render("c", {"node-tests": found.to_json()}, {"node-tests": "tests"}, made_at=START)
    assert "n2, disk: failed" in page
    assert ">fail</text>" in page, "the word stands in the cell: colour says nothing by itself"
    assert page.index("n2, disk") < page.index("n3, gemm") < page.index("n1, gemm"), "the worst first"


def test_nodes_of_one_name_on_two_clusters_are_two(store: db_store.Store) -> None:
    """Together they would drift from one's figure to the other's."""
    rows = [
        records.DiagnosticResult(
            result_id=uuid.uuid4(), cluster=cluster, round_id=uuid.uuid4(), node="n1", test="gemm", unit="s", model=cluster, version="1",
            outcome=records.Outcome.OK, measured=level, at=START + timedelta(days=day), device="cpu",
        )
        for day in range(24)
        for cluster, level in ((("c", 1.0),) if day < 12 else (("d", 2.0),))
    ]  # fmt: skip
    store.add_results(rows)
    found = fleet.node_tests(store.of(None), START, START + timedelta(days=30))
    assert {r["node"]: r["gemm"] for r in found.nodes} == {"c:n1": 1.0, "d:n1": 1.0}
    assert fleet.node_tests(store.of("c"), START, START + timedelta(days=30)).nodes == (
        {"node": "n1", "gemm": 1.0},
    )
