"""Proof that no probability can replace."""

from __future__ import annotations

import numpy as np
import pytest

from probing_cluster.lemon import episodes, proof


def capped(
    *ages: float, repeats: int = 1, shared: float = 0.0, trend: float | None = None, probability: float = 0.99
) -> float:
    """One node with episodes of these ages."""
    named = episodes.Failures(
        node=np.zeros(len(ages), np.int64),
        age_days=np.array(ages),
        weight=np.full(len(ages), 0.9),
        part=np.full(len(ages), -1),
        cause=np.full(len(ages), -1),
    )
    return float(
        proof.cap_unproven(
            np.array([probability]),
            None if trend is None else np.array([trend]),
            named,
            np.array([repeats]),
            np.array([shared]),
        )[0]
    )


def test_three_episodes_are_proof() -> None:
    """However different."""
    assert capped(20.0, 11.0, 2.0) == 0.99


@pytest.mark.parametrize("ages", [(), (3.0,), (20.0, 2.0)])
def test_fewer_are_not(ages: tuple[float, ...]) -> None:
    """None, one, and two without a third sign."""
    assert capped(*ages) == proof.UNPROVEN


def test_a_third_sign_makes_two_episodes_proof() -> None:
    """The same part again, a full share of unnamed failures, or a strong trend; a weak one or half a share does not."""
    assert capped(20.0, 2.0, repeats=2) == 0.99
    assert capped(20.0, 2.0, shared=1.2) == 0.99
    assert capped(20.0, 2.0, trend=2.5) == 0.99
    assert capped(20.0, 2.0, shared=0.9) == proof.UNPROVEN
    assert capped(20.0, 2.0, trend=1.5) == proof.UNPROVEN


def test_two_episodes_within_four_days_are_never_proof() -> None:
    """A fault that is not yet repaired."""
    assert capped(5.9, 2.0, repeats=2, shared=5.0, trend=3.0) == proof.UNPROVEN
    assert capped(6.0, 2.0, repeats=2) == 0.99


def test_unnamed_failures_and_trends_alone_are_never_proof() -> None:
    """Users' jobs fail for reasons of their own, and many nodes correct errors."""
    assert capped(3.0, shared=9.0, trend=3.0) == proof.UNPROVEN


def test_a_low_probability_stays_what_it_is() -> None:
    """The cap takes, and never gives."""
    assert capped(3.0, probability=0.2) == 0.2
