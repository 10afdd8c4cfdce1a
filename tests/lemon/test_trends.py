"""Minor signs, on a fleet of 200 equal nodes."""

from __future__ import annotations

import numpy as np
import pytest

from probing_cluster.lemon import trends

NODES = 200
DAYS = np.full(NODES, 24.0)


def counts(**bursts: int) -> np.ndarray:
    """One event on every fourth node; `n3=40` puts forty on node 3."""
    values = np.zeros(NODES)
    values[::4] = 1.0
    for node, value in bursts.items():
        values[int(node[1:])] = value
    return values


def test_trends_speak_for_the_unusual_only() -> None:
    """Forty corrected errors among nodes with one or none is a sign; one is not, and speaks a little against."""
    ratio = trends.log_ratio({"ecc": counts(n3=40)}, DAYS)
    assert ratio[3] == trends.SIGN
    assert np.delete(ratio, 3) == pytest.approx(np.log(0.5 / 0.99))


def test_two_signs_of_one_fault_are_one() -> None:
    """Corrected errors and row remaps come together."""
    one = trends.log_ratio({"ecc": counts(n3=40)}, DAYS)
    both = trends.log_ratio({"ecc": counts(n3=40), "remap": counts(n3=30)}, DAYS)
    assert both[3] == one[3]


def test_a_sign_that_many_show_says_less() -> None:
    """Eight nodes of 200 with a sign that half of lemons show: ten to one at most, not twelve."""
    few = trends.log_ratio({"ecc": counts(n3=40)}, DAYS)
    many = trends.log_ratio({"ecc": counts(**{f"n{i}": 40 for i in range(1, 37, 2)})}, DAYS)
    assert many[3] == pytest.approx(np.log(0.5 / 0.09))
    assert many[3] < few[3]


def test_forty_events_in_forty_times_the_use_are_usual() -> None:
    """Counts are judged by exposure."""
    exposure = DAYS.copy()
    exposure[3] = 24.0 * 160
    assert trends.log_ratio({"ecc": counts(n3=40)}, exposure)[3] <= 0


def test_without_any_sign_there_is_no_evidence() -> None:
    """A site without minor events loses nothing, and neither does one where no node shows any."""
    assert not trends.log_ratio({}, DAYS).any()
    assert not trends.log_ratio({"ecc": np.zeros(NODES)}, DAYS).any()
