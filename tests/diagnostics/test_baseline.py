"""A figure against its past, and the day a node began to drift."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.diagnostics import baseline

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def series(levels: list[float], noise: float, seed: int) -> list[tuple[datetime, float]]:
    draw = random.Random(seed)
    return [(DAY + timedelta(days=i), level * draw.gauss(1, noise)) for i, level in enumerate(levels)]


def test_worse_than_the_past_is_slow_in_the_figures_own_direction() -> None:
    past = [1.0, 1.01, 0.99, 1.0, 1.02]
    assert baseline.hold(1.2, past, [], lower_is_better=True).slow
    assert not baseline.hold(1.05, past, [], lower_is_better=True).slow
    assert baseline.hold(0.8, past, [], lower_is_better=False).slow
    assert not baseline.hold(1.2, past, [], lower_is_better=False).slow
    assert baseline.hold(9.0, past[:2], [], lower_is_better=True).baseline is None
    assert baseline.hold(1.2, [1.2] * 5, [1.0] * 9, lower_is_better=True).against == "model"


def test_a_drift_of_four_percent_is_found_at_its_day_and_noise_makes_none() -> None:
    right = 0
    for seed in range(40):
        found = baseline.drift(series([1.0] * 20 + [1.04] * 20, 0.01, seed))
        assert found is not None
        assert 0.025 < found.change_frac < 0.055
        right += abs((found.at - DAY).days - 20) <= 1
        assert baseline.drift(series([1.0] * 40, 0.01, seed)) is None
        assert baseline.drift(series([1.0] * 20 + [1.01] * 20, 0.002, seed)) is None
    assert right >= 38
    assert baseline.drift([]) is None


def test_a_drift_of_two_and_a_half_percent_is_found_in_figures_that_neighbours_hold_up() -> None:
    """At 1 % noise in forty days on each side of it; one figure in ten is held up by 10 % and more, which alone is no drift."""
    right = 0
    for seed in range(40):
        assert baseline.drift(held_up([1.0] * 80, seed)) is None
        found = baseline.drift(held_up([1.0] * 40 + [1.025] * 40, seed))
        right += found is not None and abs((found.at - DAY).days - 40) <= 4
    assert right >= 25


def held_up(levels: list[float], seed: int) -> list[tuple[datetime, float]]:
    draw = random.Random(seed)
    return [
        (at, value * (1 + 0.1 * draw.paretovariate(1.5) if draw.random() < 0.1 else 1.0))
        for at, value in series(levels, 0.01, seed)
    ]


def test_a_short_history_whose_levels_do_not_overlap_has_drifted() -> None:
    """Ten figures prove nothing by their order alone; one held up for four days is not enough either."""
    steady = [1.0, 1.001, 0.999, 1.002, 0.998]
    found = baseline.drift(
        [(DAY + timedelta(days=i), v) for i, v in enumerate([*steady, *(1.1 * v for v in steady)])]
    )
    assert found is not None
    assert (found.n_before, found.n_after) == (5, 5)
    assert abs(found.change_frac - 0.1) < 0.001
    assert baseline.drift([(DAY, v) for v in (1.0, 1.3, 0.99, 1.01, 1.4, 1.2, 1.02, 1.25)]) is None


@pytest.mark.parametrize(
    "values", [[1.0] * 30, [0.0] * 30, [0.0] * 15 + [1.0] * 15, [1e11] * 15 + [1.03e11] * 15, [1.0] * 7]
)
def test_a_series_without_noise_has_a_step_or_none(values: list[float]) -> None:
    """No figure is divided by what is not there; of a level of nothing no share can be said."""
    found = baseline.drift([(DAY + timedelta(days=i), v) for i, v in enumerate(values)])
    assert (found is not None) == (max(values) > 1e11)
    assert found is None or (found.n_before, round(found.change_frac, 6)) == (15, 0.03)


@given(st.lists(st.floats(), max_size=40))
def test_any_series_gets_an_answer(values: list[float]) -> None:
    """A node's own figures are untrusted: no number ends the page."""
    found = baseline.drift([(DAY + timedelta(days=i), v) for i, v in enumerate(values)])
    assert found is None or found.n_before + found.n_after == len(values)
