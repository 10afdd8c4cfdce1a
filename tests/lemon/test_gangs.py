"""Failures without a named node, small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from probing_cluster.lemon.gangs import Gangs

NODES = 8
USUAL = np.full(NODES, 1e-3)


def gangs(*sets: tuple[tuple[int, ...], float]) -> Gangs:
    """From (nodes, age); hardware did it with chance one half."""
    return Gangs.of([(np.array(nodes), 0.5) for nodes, _ in sets], np.array([age for _, age in sets]))


def test_a_failure_is_shared_among_equals_and_chance() -> None:
    """Two equal nodes and an even chance that it was no hardware: a quarter each."""
    assert gangs(((1, 2), 0.0)).share_out(USUAL, 1e-3, NODES) == pytest.approx([0, 0.25, 0.25, 0, 0, 0, 0, 0])


def test_a_bad_node_acquits_its_peers() -> None:
    """Node 1 fails a hundred times as often: nearly all is laid at it."""
    mean = USUAL.copy()
    mean[1] = 0.1
    shares = gangs(((1, 2), 0.0)).share_out(mean, 1e-3, NODES)
    assert shares[1] == pytest.approx(100 / 103)
    assert shares[2] == pytest.approx(1 / 103)


def test_the_same_nodes_dying_again_are_no_second_witness() -> None:
    """A broken job that is requeued twenty times accuses its nodes once, in whatever order they are listed."""
    once = gangs(((1, 2, 3), 9.0)).share_out(USUAL, 1e-3, NODES)
    often = gangs(*(((1, 2, 3) if i % 2 else (3, 1, 2), float(i)) for i in range(20))).share_out(
        USUAL, 1e-3, NODES
    )
    assert often == pytest.approx(once)


def test_a_single_node_counts_once_per_episode() -> None:
    """Deaths 10, 9 and 3 days ago are two episodes."""
    assert gangs(((4,), 10.0), ((4,), 9.0), ((4,), 3.0)).share_out(USUAL, 1e-3, NODES)[4] == pytest.approx(
        2 * 0.5
    )


def test_large_gangs_hint_at_nobody() -> None:
    """A gang of k counts 1/k²."""
    hints = gangs(((1, 2), 0.0), (tuple(range(8)), 0.0)).hint(NODES)
    assert hints[1] == pytest.approx(1 / 4 + 1 / 64)
    assert hints[5] == pytest.approx(1 / 64)


def test_without_failures_nobody_has_a_share() -> None:
    """A quiet month."""
    none = Gangs.of([], None)
    assert none.share_out(USUAL, 1e-3, NODES).tolist() == [0.0] * NODES
    assert none.rate_beside(USUAL, 1e-3).size == 0
