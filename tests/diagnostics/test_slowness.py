"""Slow nodes are named, healthy fleets are left alone."""

from __future__ import annotations

import random

import pytest

from benchmarks.diagnostics import isolation as drawn
from probing_cluster.diagnostics import slowness


def test_a_node_of_one_point_two_is_found_and_healthy_fleets_are_not_accused() -> None:
    """60 of each, 2 % noise, sizes from 4 to 64; benchmarks/diagnostics/isolation.py draws more."""
    draw = random.Random(11)
    for _ in range(60):
        fleet = drawn.drawn(draw.randint(6, 64), 0, draw)
        assert drawn.slow_nodes(fleet) == (set(), set())
        fleet.factors = {draw.choice(fleet.names): 1.2}
        assert drawn.slow_nodes(fleet) == (set(fleet.factors), set())


def test_a_slow_link_is_no_slow_node() -> None:
    draw = random.Random(12)
    found = 0
    for _ in range(40):
        fleet = drawn.drawn(8, 0, draw)
        timing = slowness.Timing(fleet.names)
        first = timing.next_pairs()
        fleet.link_factors = {first[0]: 1.5}
        for pair in first:
            timing.add(pair, fleet.seconds(pair))
        while pairs := timing.next_pairs():
            for pair in pairs:
                timing.add(pair, fleet.seconds(pair))
        nodes, links = timing.outcome()
        assert not nodes
        found += links == (first[0],)
    assert found >= 38


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.8])
def test_neighbours_on_shared_processors_make_no_node_slow(share: float) -> None:
    """Some times are held up by 10 % to several times: nobody is accused, and 1.2 x is found while that is rare."""
    draw = random.Random(13)
    found = refused = 0
    for _ in range(40):
        fleet = drawn.drawn(draw.randint(4, 64), 0, draw)
        fleet.shared = share
        assert drawn.slow_nodes(fleet) == (set(), set())
        fleet.factors = {draw.choice(fleet.names): 1.2}
        timing = drawn.timed(fleet)
        nodes, _ = timing.outcome()
        assert set(nodes) <= set(fleet.factors)
        found += bool(nodes)
        refused += "too noisy" in timing.noise()
    assert found >= (38 if share < 0.1 else 0)
    assert refused >= (30 if share > 0.1 else 0)


def test_too_few_figures_accuse_nobody() -> None:
    """Two nodes, one twice as slow as the other: which is as it should be nobody knows."""
    assert slowness.slow({"a": 1.0, "b": 2.0, "c": 1.0}) == set()
    assert slowness.Timing(["a", "b", "c"]).next_pairs() == ()
    assert slowness.slow({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.04}) == {"e"}
