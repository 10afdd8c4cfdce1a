"""How noisy the machine was: what the steps of ranks that did nothing wrong took, by their own clocks."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from pathlib import Path

WARM_UP = 3
"""First steps that fill caches."""
LEAST = 10


def measure(directory: Path, culprits: Collection[int], until: int | None = None) -> dict[str, float]:
    """`compute_frac`, `step_s` and `step_frac` over the healthy ranks of a gang; empty where too few steps were made.

    Each rank has written a line per step, what its compute (a sleep) and its whole step took, seconds. The
    fractions are standard deviation / mean of one rank's steps, the median over ranks; `until` leaves out later steps.
    """
    computes, steps = [], []
    for path in sorted(directory.glob("steps.*")):
        if int(path.suffix[1:]) in culprits:
            continue
        rows = [line.split() for line in path.read_text("utf-8").splitlines()]
        rows = [r for r in rows if len(r) == 2][WARM_UP:until]  # the last line may be half a line
        if len(rows) >= LEAST:
            computes.append([float(r[0]) for r in rows])
            steps.append([float(r[1]) for r in rows])
    if not steps:
        return {}
    return {
        "compute_frac": round(statistics.median(map(_spread, computes)), 5),
        "step_frac": round(statistics.median(map(_spread, steps)), 5),
        "step_s": round(statistics.median(statistics.median(s) for s in steps), 5),
    }


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)
