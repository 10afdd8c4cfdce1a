"""A forged detail may hold anything where a number belongs."""

from __future__ import annotations

import math

import pytest

from probing_cluster.core import untrusted


@pytest.mark.parametrize("value", [None, True, "3", -1, -0.5, math.nan, math.inf, 10**400, [3]])
def test_what_is_no_number_is_none(value: object) -> None:
    """Also NaN, and an integer that no float holds: arithmetic on it would raise."""
    assert untrusted.number(value) is None


def test_numbers_and_indices() -> None:
    """An integer counts as a number; a float is no index."""
    assert (untrusted.number(3), untrusted.number(0.5)) == (3.0, 0.5)
    assert (untrusted.index(3), untrusted.index(3.0), untrusted.index(True), untrusted.index(2**63)) == (
        3,
        None,
        None,
        None,
    )
