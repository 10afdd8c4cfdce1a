"""Model FLOPs utilisation of a training, from the user's table of tokens and parameters.

A dense transformer takes about six floating-point operations per parameter and token, forward and backward (Chowdhery et al.
2022, appendix B; without attention's own term, so this is a lower bound). Recomputed activations do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLOP_PER_PARAMETER_AND_TOKEN = 6.0
COLUMNS = frozenset({"step", "tokens", "parameters"})
"""Columns that the user's table must have. Rows of one step are summed: each rank writes the tokens that it trained on."""
PEAK = "peak_tflops"
"""Column with a GPU's peak rate, 10¹² per second; without it the utilisation is unknown."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """One optimizer step."""

    step: int
    tflops_per_gpu: float
    """Model operations per second and GPU, 10¹²."""
    mfu: float | None
    """Share of the GPU's peak, 0..1; None if the peak is unknown."""


def per_step(own: Sequence[Row], steps: Sequence[Row]) -> list[StepFlops]:
    """Every step with known tokens, parameters and duration, in order.

    `own`: rows of the user's table. `steps`: rows of torch.steps (step, duration_s, rank); a step missing there takes the
    duration_s of the user's table. The slowest rank's time is the step's. The number of GPUs is the number of ranks.
    """
    seconds = _longest(own) | _longest(steps)
    ranks = {r["rank"] for r in (*own, *steps) if r.get("rank") is not None}
    tokens: dict[int, float] = defaultdict(float)
    parameters: dict[int, float] = {}
    peak: dict[int, float] = {}
    for row in own:
        step, n, size = row["step"], row["tokens"], row["parameters"]
        if step is None or n is None or size is None:
            continue
        tokens[step] += n
        parameters[step] = max(size, parameters.get(step, 0.0))
        if row.get(PEAK):
            peak[step] = max(row[PEAK], peak.get(step, 0.0))
    found = []
    for step in sorted(tokens.keys() & seconds.keys()):
        work = FLOP_PER_PARAMETER_AND_TOKEN * parameters[step] * tokens[step]
        rate = work / seconds[step] / max(1, len(ranks)) / 1e12
        mfu = rate / peak[step] if step in peak else None
        found.append(StepFlops(step=step, tflops_per_gpu=rate, mfu=mfu))
    return found


def _longest(rows: Sequence[Row]) -> dict[int, float]:
    """Step to the longest of its durations, seconds."""
    found: dict[int, float] = {}
    for row in rows:
        step, took = row.get("step"), row.get("duration_s")
        if step is not None and took is not None and took > 0:
            found[step] = max(took, found.get(step, 0.0))
    return found
