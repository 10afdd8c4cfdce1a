"""Slow ranks by late arrival."""

import random

import pytest

from probing_cluster.attribution.gang import slow


def synchronous(
    own: dict[int, list[float]], *, inputs: dict[int, float] | None = None
) -> dict[int, list[slow.StepTimes]]:
    """A gang whose every step ends when its slowest rank arrives; the others wait for it."""
    inputs = inputs or {}
    gang: dict[int, list[slow.StepTimes]] = {rank: [] for rank in own}
    for step in range(len(next(iter(own.values())))):
        busy = {rank: times[step] + inputs.get(rank, 0.0) for rank, times in own.items()}
        total = max(busy.values()) + 0.002
        for rank in own:
            gang[rank].append(
                slow.StepTimes(
                    step=step,
                    total_s=total,
                    input_s=inputs.get(rank, 0.0),
                    waiting_s=total - busy[rank],
                    checkpoint_s=0.0,
                )
            )
    return gang


def noisy(
    ranks: int, steps: int, seed: int, slow_rank: int | None = None, factor: float = 1.2
) -> dict[int, list[float]]:
    """50 ms of compute a step with 2 % seeded noise; one rank `factor` times slower."""
    rng = random.Random(seed)
    return {
        r: [0.05 * (factor if r == slow_rank else 1.0) * (1 + rng.gauss(0, 0.02)) for _ in range(steps)]
        for r in range(ranks)
    }


@pytest.mark.parametrize("seed", range(40))
def test_a_rank_a_fifth_slower_is_found(seed: int) -> None:
    """1.2x slow, 2 % noise: exactly that rank, in compute, every time."""
    found = slow.slow_ranks(synchronous(noisy(8, 40, seed, slow_rank=seed % 8)))
    assert [(s.rank, s.component) for s in found] == [(seed % 8, "compute")]
    assert found[0].excess_frac == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize("seed", range(200))
def test_noise_alone_names_nobody(seed: int) -> None:
    """2 % noise and no slow rank: no alarm in any of 200 gangs."""
    assert slow.slow_ranks(synchronous(noisy(8, 40, seed))) == []


def test_the_culprit_is_not_the_one_that_waits_longest() -> None:
    """Ranking by longest collective names the victims; here they are not named."""
    gang = synchronous({0: [0.05] * 10, 1: [0.05] * 10, 2: [0.1] * 10, 3: [0.05] * 10})
    longest = max(gang, key=lambda r: sum(s.waiting_s for s in gang[r]))
    assert longest != 2
    assert [s.rank for s in slow.slow_ranks(gang)] == [2]


def test_slow_input_is_told_from_slow_compute() -> None:
    """A rank that waits 20 ms for its data loader is slow in input."""
    gang = synchronous({r: [0.05] * 10 for r in range(4)}, inputs={3: 0.02})
    assert [(s.rank, s.component) for s in slow.slow_ranks(gang)] == [(3, "input")]


def test_too_little_is_nothing() -> None:
    """Two ranks, or a handful of steps, prove nothing."""
    assert slow.slow_ranks(synchronous(noisy(2, 40, 1, slow_rank=1))) == []
    assert slow.slow_ranks(synchronous(noisy(8, 5, 1, slow_rank=1))) == []
    assert slow.slow_ranks({}) == []
