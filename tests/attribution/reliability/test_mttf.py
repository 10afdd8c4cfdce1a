"""MTTF, its exact interval and its projection against published numbers."""

from __future__ import annotations

import math
import random

import pytest

from probing_cluster.attribution.reliability import mttf


def test_the_exact_poisson_interval_of_ten():
    """[4.795, 18.390], the textbook value."""
    rate = mttf.poisson_rate(10, 1.0)
    assert (rate.low, rate.high) == (pytest.approx(4.795, abs=1e-3), pytest.approx(18.390, abs=1e-3))


def test_no_event_has_an_upper_bound_only():
    """Rule of three: 3.689 at 97.5 %."""
    rate = mttf.poisson_rate(0, 1.0)
    assert (rate.rate, rate.low, rate.high) == (0.0, 0.0, pytest.approx(3.689, abs=1e-3))
    assert mttf.measured((), 100.0).mttf_h is None
    assert mttf.measured((), 100.0).low_h == pytest.approx(100 / 3.689, rel=1e-3)


def test_without_exposure_nothing_is_known():
    """None, never zero."""
    assert mttf.poisson_rate(0, 0.0).rate is None


@pytest.mark.parametrize(("n_gpus", "hours"), [(16_384, 1.803), (131_072, 0.225)])
def test_published_projections(n_gpus, hours):
    """1 / (N r_f) with 6.5 failures per 1000 node-days gives the published 1.8 h and 0.23 h."""
    assert mttf.projected_h(n_gpus, 6.5e-3) == pytest.approx(hours, abs=1e-3)


def test_the_published_measured_points_do_not_follow_from_the_rate():
    """7.9 h at 1024 GPUs and 47.7 d at 8 are measurements: the formula gives 28.8 h and 153.8 d."""
    assert mttf.projected_h(1024, 6.5e-3) == pytest.approx(28.85, abs=0.01)
    assert mttf.projected_h(8, 6.5e-3) / 24 == pytest.approx(153.8, abs=0.1)


def test_llama3_interruptions():
    """419 in 54 days on 16,384 GPUs: 3.09 h."""
    assert mttf.measured([1] * 419, 54 * 24).mttf_h == pytest.approx(3.09, abs=0.005)


def test_without_failures_the_projection_is_endless():
    """No rate, no end."""
    assert mttf.projected_h(8, 0.0) == math.inf


@pytest.mark.parametrize("n", [0, 1, 7, 400])
def test_clusters_of_one_have_the_exact_poisson_interval(n):
    """Whoever fails alone is an independent failure."""
    assert mttf.clustered_rate([1] * n, 10.0) == mttf.poisson_rate(n, 10.0)


def test_one_fault_that_ends_ten_jobs_has_the_interval_of_one_fault():
    """Ten times the interval of one event: [0.253, 55.7], not that of ten, [4.8, 18.4]."""
    one, ten = mttf.poisson_rate(1, 1000.0), mttf.clustered_rate([10], 1000.0)
    assert (ten.n_events, ten.rate) == (10, pytest.approx(0.01))
    assert (ten.low, ten.high) == (pytest.approx(10 * one.low), pytest.approx(10 * one.high))


def test_without_exposure_clusters_have_no_rate_either():
    """None, never zero."""
    assert mttf.clustered_rate([3], 0.0).rate is None


@pytest.mark.parametrize("sizes", [(10,), (1, 2, 3, 6), (1, 1, 1, 1, 1, 1, 1, 1, 1, 5)])
def test_the_interval_holds_the_true_rate_of_clustered_failures(sizes):
    """Of 600 drawn histories with forty incidents each, in about 95 %; the interval of as many lone failures in far fewer."""
    rng = random.Random(11)
    true = 40 * sum(sizes) / len(sizes)
    held = {mttf.clustered_rate: 0, poisson: 0}
    for _ in range(600):
        n, left = 0, rng.expovariate(1)
        while left < 40:
            n, left = n + 1, left + rng.expovariate(1)
        drawn = [rng.choice(sizes) for _ in range(n)]
        for interval in held:
            found = interval(drawn, 1.0)
            held[interval] += found.low <= true <= found.high
    assert held[mttf.clustered_rate] / 600 == pytest.approx(0.95, abs=0.03)
    assert held[poisson] / 600 < 0.9


def poisson(sizes, exposure):
    """The interval that takes each failure for an incident of its own."""
    return mttf.poisson_rate(sum(sizes), exposure)
