"""Matrix products whose every element is known beforehand: periodic factors of small integers.

With A[i][k] = a[(i + k) % p] and B[k][j] = b[(k + j) % p] the product C[i][j] depends on (j - i) % p alone, so p numbers
say what n² elements must be. The integers are small enough that every order of adding them in floating point is exact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

PERIOD = 64
_MOST = 8


def factors(seed: int) -> tuple[list[int], list[int]]:
    """The periods of A and B for one round."""
    draw = random.Random(seed)
    return (
        [draw.randint(-_MOST, _MOST) for _ in range(PERIOD)],
        [draw.randint(-_MOST, _MOST) for _ in range(PERIOD)],
    )


def matrices(a: Sequence[int], b: Sequence[int], size: int) -> tuple[list[list[float]], list[list[float]]]:
    """A and B of order `size`, a multiple of the period."""
    rows_a = [[float(a[(i + k) % PERIOD]) for k in range(size)] for i in range(PERIOD)]
    rows_b = [[float(b[(k + j) % PERIOD]) for j in range(size)] for k in range(PERIOD)]
    return [rows_a[i % PERIOD] for i in range(size)], [rows_b[k % PERIOD] for k in range(size)]


def checksums(a: Sequence[int], b: Sequence[int], size: int) -> list[float]:
    """What C[i][j] must be, by (j - i) % PERIOD."""
    times = size // PERIOD
    return [float(times * sum(a[m] * b[(m + d) % PERIOD] for m in range(PERIOD))) for d in range(PERIOD)]


def wrong_elements(product: Sequence[Sequence[float]], expected: Sequence[float]) -> tuple[int, int]:
    """How many elements differ, and how many of those are NaN or infinite."""
    wrong = broken = 0
    for i, row in enumerate(product):
        turned = [expected[(j - i) % PERIOD] for j in range(PERIOD)]
        for start in range(0, len(row), PERIOD):
            if list(row[start : start + PERIOD]) == turned:
                continue
            for value, right in zip(row[start : start + PERIOD], turned, strict=True):
                wrong += value != right
                broken += value != value or value in (float("inf"), float("-inf"))  # noqa: PLR0124 - NaN differs from itself
    return wrong, broken
