"""Swap search names the slow node of a job in few replacements, and says when it is none of them."""

from __future__ import annotations

import random

import pytest

from probing_cluster.core import errors
from probing_cluster.diagnostics import swap


def search(
    n: int, spares: int, guilty: str, seed: int, slow: float = 1.05, noise: float = 0.005
) -> tuple[str, float, int]:
    draw = random.Random(seed)
    nodes = {f"n{i}" for i in range(n)}
    fresh = (f"s{i}" for i in range(1000))

    def ran(here: set[str]) -> swap.Stretch:
        level = slow if guilty in here or guilty == swap.NOBODY else 1.0
        return swap.Stretch(nodes=frozenset(here), step_s=level * draw.gauss(1, noise))

    stretches = [ran(nodes)]
    for turn in range(60):
        plan = swap.plan(stretches, spares, 1.0, slow)
        if plan.settled:
            return *plan.suspect, turn
        assert plan.replace or plan.put_back
        assert len(plan.replace) <= spares
        cleared = sorted(n for n in nodes if plan.probabilities.get(n, 0.0) < 0.001)
        nodes = (nodes - set(plan.replace)) | {next(fresh) for _ in plan.replace}
        nodes = (nodes - set(cleared[: len(plan.put_back)])) | set(plan.put_back)
        stretches.append(ran(nodes))
    return *plan.suspect, turn


@pytest.mark.parametrize(("n", "spares", "most"), [(8, 8, 6), (16, 4, 9), (64, 8, 14)])
def test_the_slow_node_is_named(n: int, spares: int, most: int) -> None:
    for seed in range(10):
        name, likely, turns = search(n, spares, f"n{seed % n}", seed)
        assert name == f"n{seed % n}"
        assert likely >= 0.95
        assert turns <= most


def test_a_node_that_halves_the_speed_is_found_on_a_cluster_whose_step_times_vary() -> None:
    """Five percent of noise say nothing of a slow-down of as much, and hide none of twice."""
    for seed in range(20):
        name, likely, turns = search(3, 1, f"n{seed % 3}", seed, slow=2.0, noise=0.05)
        assert (name, turns <= 6) == (f"n{seed % 3}", True)
        assert likely >= 0.95


def test_when_it_is_no_node_it_says_so() -> None:
    for seed in range(5):
        assert search(8, 8, swap.NOBODY, seed)[0] == swap.NOBODY


def test_without_a_slowdown_or_spares_it_refuses() -> None:
    with pytest.raises(errors.UsageError, match="before the job slowed"):
        swap.plan([swap.Stretch(nodes=frozenset({"a"}), step_s=1.0)], 1, 1.0, 0.9)
    with pytest.raises(errors.UsageError, match="spare"):
        swap.plan([swap.Stretch(nodes=frozenset({"a"}), step_s=1.0)], 0, 1.0, 1.2)
