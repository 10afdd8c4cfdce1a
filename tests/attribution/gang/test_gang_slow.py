"""Slow ranks by late arrival, and drift of a whole gang."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

import pytest

from probing_cluster.attribution.gang import slow
from probing_cluster.probe_agent.ranks import pages, step_windows

STEP_S = 0.05
GANGS = int(os.environ.get("PROBING_EXAMPLES", "40"))
"""Drawn ones of each sort; the soak draws 200."""


def remembered(spans: Sequence[Mapping[str, float]]) -> list[pages.PageStep]:
    """Steps that took these seconds as a page remembers them: the last 64."""
    at_ns, steps = 1_000_000_000, []
    for number, span in enumerate(spans, 1):
        at_ns += round(span["total"] * 1e9)
        steps.append(
            pages.PageStep(
                step=number,
                end_ns=at_ns,
                input_ns=round(span.get("input", 0) * 1e9),
                collective_ns=round(span.get("waiting", 0) * 1e9),
                backward_ns=round(span.get("backward", 0) * 1e9),
                checkpoint_ns=round(span.get("checkpoint", 0) * 1e9),
            )
        )
    return steps[-64:]


def windows(gang: Mapping[int, Sequence[Mapping[str, float]]]) -> dict[int, slow.PaceWindow]:
    """The service's view of a gang: each rank's last window, through the agent's own folding."""
    made = {
        rank: slow.PaceWindow.from_row(step_windows.latest(remembered(spans))) for rank, spans in gang.items()
    }
    return {rank: window for rank, window in made.items() if window is not None}


def synchronous(
    own: Mapping[int, Sequence[float]],
    *,
    inputs: Mapping[int, float] | None = None,
    in_backward: bool = False,
    network_s: float = 0.002,
) -> dict[int, list[dict[str, float]]]:
    """A gang whose every step ends when its slowest rank arrives; the others wait for it.

    `in_backward`: gradients are reduced inside the backward pass (DDP), where waiting shows as backward only.
    """
    gang: dict[int, list[dict[str, float]]] = {rank: [] for rank in own}
    for step in range(len(next(iter(own.values())))):
        extra = {rank: (inputs or {}).get(rank, 0.0) for rank in own}
        busy = {rank: times[step] + extra[rank] for rank, times in own.items()}
        total = max(busy.values()) + network_s
        for rank in own:
            waited = total - busy[rank]
            where = {"backward": waited} if in_backward else {"waiting": waited}
            gang[rank].append({"total": total, "input": extra[rank], **where})
    return gang


def noisy(
    ranks: int, steps: int, seed: int, slow_rank: int | None = None, factor: float = 1.2
) -> dict[int, list[float]]:
    """50 ms of compute a step with 2 % seeded noise; one rank `factor` times slower."""
    rng = random.Random(seed)
    return {
        r: [STEP_S * (factor if r == slow_rank else 1.0) * (1 + rng.gauss(0, 0.02)) for _ in range(steps)]
        for r in range(ranks)
    }


@pytest.mark.longer
def test_a_rank_a_fifth_slower_is_found() -> None:
    """1.2x slow, 2 % noise: exactly that rank, in compute, in every gang."""
    for seed in range(GANGS):
        found = slow.slow_in(windows(synchronous(noisy(8, 40, seed, slow_rank=seed % 8))))
        assert [(s.rank, s.component) for s in found] == [(seed % 8, "compute")], seed
        assert found[0].excess_frac == pytest.approx(0.2, abs=0.05), seed


@pytest.mark.longer
def test_it_is_found_where_gradients_are_reduced_inside_backward() -> None:
    """With DDP no collective is visible: the culprit is the one that spends least inside backward."""
    for seed in range(GANGS):
        gang = synchronous(noisy(8, 40, seed, slow_rank=seed % 8), in_backward=True)
        found = slow.slow_in(windows(gang))
        assert [(s.rank, s.component) for s in found] == [(seed % 8, "host")], seed


@pytest.mark.longer
@pytest.mark.parametrize("in_backward", [False, True])
def test_noise_alone_names_nobody(in_backward: bool) -> None:
    """2 % noise and no slow rank: no alarm in any gang."""
    for seed in range(GANGS):
        found = slow.slow_in(windows(synchronous(noisy(8, 40, seed), in_backward=in_backward)))
        assert found == [], seed


@pytest.mark.longer
def test_noise_names_nobody_among_a_thousand_ranks() -> None:
    """The more ranks, the further the extreme one: its median over a window still stays within the margin."""
    for seed in range(max(4, GANGS // 10)):
        assert slow.slow_in(windows(synchronous(noisy(1024, 16, seed)))) == []


def test_the_culprit_is_not_the_one_that_waits_longest() -> None:
    """Ranking by longest collective names the victims; here they are not named."""
    gang = synchronous({0: [0.05] * 16, 1: [0.05] * 16, 2: [0.1] * 16, 3: [0.05] * 16})
    longest = max(gang, key=lambda r: sum(s["waiting"] for s in gang[r]))
    assert longest != 2
    (found,) = slow.slow_in(windows(gang))
    assert (found.rank, round(found.waited_s, 6), round(found.own_s, 6)) == (2, 0.05, 0.1)


def test_slow_input_is_told_from_slow_compute() -> None:
    """A rank that waits 20 ms for its data loader is slow in input, also where waiting hides in backward."""
    for in_backward in (False, True):
        gang = synchronous({r: [0.05] * 16 for r in range(4)}, inputs={3: 0.02}, in_backward=in_backward)
        assert [(s.rank, s.component) for s in slow.slow_in(windows(gang))] == [(3, "input")]


def test_a_rank_nobody_waits_for_is_not_slow() -> None:
    """Independent ranks without collectives differ, and none delays another."""
    gang = {r: [{"total": 0.05 * (1.5 if r == 2 else 1.0)}] * 16 for r in range(8)}
    assert slow.slow_in(windows(gang)) == []


def test_two_kinds_of_work_are_no_slow_ranks() -> None:
    """Pipeline stages of unequal size: half of the gang is slower than the other half, and no rank is at fault."""
    gang = synchronous({r: [0.05 if r % 2 else 0.07] * 16 for r in range(8)})
    assert slow.slow_in(windows(gang)) == []


def test_too_little_is_nothing() -> None:
    """Two ranks, or a handful of steps, prove nothing."""
    assert slow.slow_in(windows(synchronous(noisy(2, 40, 1, slow_rank=1)))) == []
    assert windows(synchronous(noisy(8, 15, 1, slow_rank=1))) == {}
    assert slow.slow_in({}) == []


@pytest.mark.parametrize(
    "row",
    [
        None, "", [], {}, {"index": 1}, "x" * 1000,
        {n: float("nan") for n in ("index", "steps", "total_s", "compute_s", "host_s", "input_s", "checkpoint_s", "waiting_s", "backward_s")},
        {"index": 1, "steps": 16, "total_s": 1e300, "compute_s": 0, "host_s": 0, "input_s": 0, "checkpoint_s": 0, "waiting_s": 0, "backward_s": 0},
        {"index": 1, "steps": 16, "total_s": "?", "compute_s": 0, "host_s": 0, "input_s": 0, "checkpoint_s": 0, "waiting_s": 0, "backward_s": 0},
        {"index": -1, "steps": 16, "total_s": 1, "compute_s": 0, "host_s": 0, "input_s": 0, "checkpoint_s": 0, "waiting_s": 0, "backward_s": 0},
    ],
)  # fmt: skip
def test_what_is_no_window_is_none(row: object) -> None:
    """A user writes the page: nothing in it makes the service fail or compute with nonsense."""
    assert slow.PaceWindow.from_row(row) is None


def paces(compute_s: float, network_s: float, n: int, seed: int) -> list[slow.Pace]:
    """Windows of a gang with 2 % noise on its compute."""
    rng = random.Random(seed)
    made = []
    for index in range(n):
        own = {r: [compute_s * (1 + rng.gauss(0, 0.02)) for _ in range(16)] for r in range(8)}
        made.append(slow.pace_of(index, windows(synchronous(own, network_s=network_s))))
    return made


@pytest.mark.parametrize("seed", range(25))
def test_drift_is_told_by_component_and_noise_is_none(seed: int) -> None:
    """The gang of tonight against itself this morning: slower compute, slower network, or the same."""
    first = paces(0.05, 0.010, 8, seed)
    assert slow.drift(first, paces(0.05, 0.010, 4, seed + 1000)) == []
    assert [d.component for d in slow.drift(first, paces(0.06, 0.010, 4, seed + 2000))] == ["compute"]
    assert [d.component for d in slow.drift(first, paces(0.05, 0.025, 4, seed + 3000))] == ["network"]
    assert slow.drift([], first) == slow.drift(first, []) == []
