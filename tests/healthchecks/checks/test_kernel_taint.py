"""Kernel taint."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome


@pytest.mark.parametrize(
    ("mask", "outcome"),
    [
        (0, Outcome.OK),
        (1 | 1 << 12 | 1 << 13, Outcome.OK),
        (1 << 9, Outcome.WARN),
        (1 << 7, Outcome.FAIL),
        (1 << 14 | 1 << 9, Outcome.FAIL),
    ],
)
def test_masks(node: Any, mask: int, outcome: Outcome) -> None:
    """Out-of-tree modules are no fault, a warning warns, an oops or lockup fails."""
    node.put("proc/sys/kernel/tainted", str(mask))
    assert node.check("kernel_taint").outcome is outcome


def test_not_told(node: Any) -> None:
    """Without the file there is nothing to judge."""
    assert node.check("kernel_taint").outcome is Outcome.ABSENT
