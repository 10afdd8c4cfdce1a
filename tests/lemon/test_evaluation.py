"""The simulated fleets are what they say, and the figures drawn from them are right."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.lemon import evaluate, figures, fleet, replay
from probing_cluster.lemon import baseline

RSC1 = evaluate.REGIMES["rsc1"]


@pytest.fixture(scope="module")
def rsc1():
    """One fleet of 2,000 nodes whose lemons are all bad from the first day."""
    return fleet.simulate(dataclasses.replace(RSC1, initial_frac=1.0), 1)


def test_the_fleet_has_the_papers_rate_and_share(rsc1) -> None:
    """6.5 failures per 1,000 node-days, 1.2 % lemons with 10 of 14 failures, half of GPU time in 512-GPU jobs."""
    true = rsc1.culprit >= 0
    repeats = 1 + RSC1.recur_frac * RSC1.named_frac
    per_node_day = true.sum() / (rsc1.use.sum() * RSC1.days) / repeats
    assert per_node_day == pytest.approx(6.5e-3, rel=0.2)
    assert rsc1.lemon.sum() == 24
    assert rsc1.lemon[rsc1.culprit[true]].mean() == pytest.approx(10 / 14, abs=0.07)
    assert fleet.GPU_TIME[fleet.SIZES >= 32].sum() == pytest.approx(0.66)
    assert figures.outcome(rsc1, 1, {}).large_before[0] == pytest.approx(0.14, abs=0.03)


def test_users_exclude_nodes_at_random(rsc1) -> None:
    """As in the paper, exclusions do not tell lemons from others."""
    per_node = rsc1.excludes.sum(0)
    assert per_node[rsc1.lemon].mean() == pytest.approx(per_node[~rsc1.lemon].mean(), rel=0.1)


def test_the_same_seed_is_the_same_fleet() -> None:
    """Figures can be had again."""
    small = dataclasses.replace(RSC1, nodes=50, days=60)
    one, again, other = (fleet.simulate(small, seed) for seed in (3, 3, 4))
    assert one.day.tolist() == again.day.tolist()
    assert one.day.tolist() != other.day.tolist()


def test_seeds_to_tune_on_and_to_report_are_apart() -> None:
    """The reported fleets were never used for tuning."""
    assert not set(evaluate.DEVELOPMENT) & set(evaluate.HELD_OUT)


def test_a_window_shows_nothing_of_the_future_nor_of_nodes_taken_out(rsc1) -> None:
    """Day 100 sees days 16 to 99; a node mended on day 90 is not scored again."""
    out = np.full(RSC1.nodes, np.inf)
    worst = int(np.bincount(rsc1.named[rsc1.named >= 0]).argmax())
    window = replay.window_of(rsc1, 100, replay.Options(), out)
    assert window.failures.age_days.min() > 0
    assert window.failures.age_days.max() <= 84
    assert worst in window.failures.node
    out[worst] = 90
    later = replay.window_of(rsc1, 100, replay.Options(), out)
    assert worst not in later.failures.node
    assert later.exposure_days[worst] < 1


def test_the_papers_signals_are_of_28_days(rsc1) -> None:
    """One failure on day d is seen on the mornings of d + 1 to d + 28."""
    row = int(np.flatnonzero((rsc1.named >= 0) & (rsc1.size > 1) & (rsc1.day > 40) & (rsc1.day < 200))[0])
    day, node = int(rsc1.day[row]), rsc1.named[row]
    multi = replay.signals_of(rsc1)["multi_node_node_fails"][:, node]
    mine = (rsc1.named == node) & (rsc1.size > 1)
    for morning in (day, day + 1, day + 28, day + 29):
        window = mine & (rsc1.day < morning) & (rsc1.day >= morning - 28)
        assert multi[morning] == window.sum()


def test_the_papers_rule_names_a_node_on_the_first_morning_it_is_over() -> None:
    """Two signals of three from day 12 on; one signal alone never."""
    shape = (30, 4)
    signals = {name: np.zeros(shape) for name in baseline.SIGNALS}
    signals["multi_node_node_fails"][12:, 2] = 3
    signals["xid_cnt"][10:, 2] = 3
    signals["multi_node_node_fails"][5:, 3] = 3
    limits = dict.fromkeys(baseline.SIGNALS, 3.0)
    assert replay.paper(signals, limits, baseline.LemonRule(floor=3.0, votes=2)) == {2: 12}


def test_a_lemon_named_before_it_was_one_is_named_wrongly() -> None:
    """Named too early, after it was mended, or never: only one of four counts, and delays know the missed."""
    small = fleet.simulate(dataclasses.replace(RSC1, nodes=100, lemon_share=0.04), 5)
    a, b, c, d = np.flatnonzero(small.lemon).tolist()
    onset, mended = np.full(100, np.inf), np.full(100, np.inf)
    onset[[a, b, c, d]], mended[c] = (50.0, 50.0, 50.0, 50.0), 80.0
    made = dataclasses.replace(small, onset=onset, mended=mended)
    got = figures.outcome(made, 5, {a: 60, b: 40, c: 90})
    assert (got.named, got.right) == (3, 1)
    assert got.delays == (10.0, np.inf, np.inf, np.inf)
    assert figures.median_days([got]) == np.inf


def test_taking_lemons_out_spares_large_jobs(rsc1) -> None:
    """All of them from the first day: 4 % are left of 14 %."""
    got = figures.outcome(rsc1, 1, dict.fromkeys(np.flatnonzero(rsc1.lemon).tolist(), 0))
    assert got.large_after[0] == pytest.approx(0.04, abs=0.01)


def test_bounds_by_the_book() -> None:
    """Clopper-Pearson of 10 of 10 and 0 of 10; three in no event (Poisson); nothing of nothing."""
    assert figures.exact(10, 10) == (pytest.approx(0.6915, abs=1e-4), 1.0)
    assert figures.exact(0, 10) == (0.0, pytest.approx(0.3085, abs=1e-4))
    assert figures.poisson_upper(0, 1.0) == pytest.approx(2.9957, abs=1e-4)
    assert np.isnan(figures.exact(0, 0)).all()


def test_reliability_groups_beliefs() -> None:
    """Two nodes believed 0.85, one of them a lemon."""
    small = figures.Outcome(
        seed=0, named=0, right=0, delays=(), months=1.0, large_before=(0, 0), large_after=(0, 0),
        believed=np.array([[0.85, 1], [0.85, 0], [0.001, 0]]),
    )  # fmt: skip
    assert figures.reliability([small]) == [
        (0.0, 0.01, 1, 0.001, 0.0),
        (0.8, 0.9, 2, pytest.approx(0.85), 0.5),
    ]


def test_the_score_finds_most_lemons_of_a_small_fleet_and_hardly_anybody_else() -> None:
    """300 nodes, six lemons, a run a fortnight."""
    made = fleet.simulate(dataclasses.replace(RSC1, nodes=300, lemon_share=0.02), 2)
    got = figures.outcome(made, 2, replay.ours(made, replay.Options(every=14)).found)
    assert got.right >= 4
    assert got.named - got.right <= 1


def test_a_small_fleet_without_lemons_has_none_named() -> None:
    """300 nodes, 11 months."""
    made = fleet.simulate(dataclasses.replace(RSC1, nodes=300, lemon_share=0.0), 2)
    assert len(replay.ours(made, replay.Options(every=14)).found) <= 1
