"""A real history: GPUs of Titan (OLCF), 2014 to 2019."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.lemon import titan


@pytest.fixture(scope="module")
def history(request):
    """The history; skips where the samples are absent."""
    directory: Path = request.getfixturevalue("shared_samples")
    path = directory / "traces/titan_gpu_lifetimes.csv"
    if not path.is_file():
        pytest.skip("no titan_gpu_lifetimes.csv among the samples")
    return titan.read(path)


def test_an_order_is_judged_by_who_stands_above_whom() -> None:
    """Both that fail again stand above: 1; one above, one below two others: 0.5; all equal: 0.5."""
    truths = np.array([True, True, False, False])
    assert titan.ranking(np.array([0.9, 0.8, 0.2, 0.1]), truths).auc == 1.0
    assert titan.ranking(np.array([0.9, 0.0, 0.2, 0.1]), truths).auc == 0.5
    assert titan.ranking(np.full(4, 0.3), truths).auc == 0.5


def test_the_locations_that_stand_first_fail_again_more_often_than_others(history) -> None:
    """The ten highest on each of thirteen mornings, every four months from 2015 to 2019."""
    got = titan.compare(history, range(400, 1860, 120))
    assert got.first == 130
    assert got.failed > got.expected
    assert got.p_value < 0.05
