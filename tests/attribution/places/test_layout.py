"""The places of nodes over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from probing_cluster.attribution.places import layout
from probing_cluster.core import records

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def row(node: str, place: str, since: int, until: int | None = None, cluster: str = "c") -> records.NodePlace:
    """A rack from day `since` to day `until`."""
    return records.NodePlace(
        cluster=cluster, node=node, kind="rack", place=place, since_at=DAY + timedelta(days=since),
        until_at=None if until is None else DAY + timedelta(days=until),
    )  # fmt: skip


def test_a_node_that_moved_was_where_it_was() -> None:
    """Before the move the old rack, from its instant on the new one; before anything was known, the first one known."""
    places = layout.Places(
        [row("n1", "r1", 0, 5), row("n1", "r2", 5), row("n2", "r1", 0), row("n1", "x", 0, cluster="d")]
    )
    assert places.at("c", DAY + timedelta(days=4)).members["rack", "r1"] == {"n1", "n2"}
    assert places.at("c", DAY + timedelta(days=5)).of_node["n1"] == {("rack", "r2")}
    assert places.at("c", DAY - timedelta(days=100)).of_node["n1"] == {("rack", "r1")}
    assert places.at("d", DAY).of_node["n1"] == {("rack", "x")}
    assert not places.at("nowhere", DAY).of_node


def test_candidates_leave_out_what_cannot_be_shared_or_cannot_tell() -> None:
    """A rack of one node is no shared place, and neither is one that holds all nodes."""
    where = layout.NodeLayout(
        [
            ("a", ("rack", "r1")),
            ("b", ("rack", "r1")),
            ("c", ("rack", "r2")),
            ("a", ("room", "x")),
            ("b", ("room", "x")),
        ]
    )
    assert where.n_candidates == 1
