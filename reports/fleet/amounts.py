"""Amounts in the fleet's sentences."""

from __future__ import annotations

from probing_cluster.core import vocabulary

FEW = 4
"""With fewer attempts, failures or runs only their number is shown: a share, a rate or a mean of so few means nothing."""


def percent(value: float) -> str:
    """A share of 1."""
    return "less than 0.01 %" if 0 < value < 1e-4 else f"{value * 100:.3g} %"


def amount(value: float) -> str:
    """Three digits are enough."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def one_per_gpu_h(rate: float) -> str:
    """`one in 48,000 GPU hours`: a rate as the time between two failures."""
    return f"one in {amount(1 / rate)} GPU hours" if rate > 0 else "none"


def gpus(n: int) -> str:
    """`1 GPU`, `1,024 GPUs`."""
    return vocabulary.plural(n, "GPU")


def node_days(value: float) -> str:
    """`12.5 node-days`; for a cluster that is minutes old `1.2 node-minutes`."""
    if 0 < value < 1 / 24:
        return f"{amount(value * 1440)} node-minutes"
    return f"{amount(value * 24)} node-hours" if 0 < value < 1 else f"{amount(value)} node-days"
