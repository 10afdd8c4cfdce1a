"""A figure against its past, and the day a node began to drift."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

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
        assert baseline.drift(series([1.0] * 20 + [1.02] * 20, 0.002, seed)) is None
    assert right >= 38
    assert baseline.drift([]) is None
