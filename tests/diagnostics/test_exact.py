"""Products are known beforehand: every wrong bit and every NaN is found."""

from __future__ import annotations

import random

import pytest

from probing_cluster.diagnostics import exact, machine


@pytest.mark.parametrize("seed", range(3))
def test_the_product_is_what_was_said(seed: int) -> None:
    a, b = exact.factors(seed)
    left, right = exact.matrices(a, b, 64)
    product = machine.Machine(node="n").product(left, right)
    assert exact.wrong_elements(product, exact.checksums(a, b, 64)) == (0, 0)


def test_one_wrong_element_anywhere_is_found() -> None:
    a, b = exact.factors(1)
    expected = exact.checksums(a, b, 128)
    draw = random.Random(1)
    good = [[expected[(j - i) % exact.PERIOD] for j in range(128)] for i in range(128)]
    for value, broken in ((None, 0), (float("nan"), 1), (float("inf"), 1)):
        i, j = draw.randrange(128), draw.randrange(128)
        product = [list(row) for row in good]
        product[i][j] = product[i][j] + 2.0**-20 if value is None else value
        assert exact.wrong_elements(product, expected) == (1, broken)
