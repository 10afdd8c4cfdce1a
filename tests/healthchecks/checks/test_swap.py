"""Swap."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def swap(node: Any, total: int, free: int) -> None:
    node.put("proc/meminfo", f"MemTotal: 100 kB\nSwapTotal: {total} kB\nSwapFree: {free} kB")


def test_use(node: Any) -> None:
    """Little use is ok, more than half warns."""
    swap(node, 1000, 900)
    assert node.check("swap").outcome is Outcome.OK
    swap(node, 1000, 400)
    assert (node.check("swap").outcome, node.check("swap").measured) == (Outcome.WARN, 0.6)


def test_size(node: Any) -> None:
    """Less swap than the site wants warns, even none at all."""
    swap(node, 0, 0)
    assert node.check("swap").outcome is Outcome.ABSENT
    assert node.check("swap", expected_bytes=1 << 30).outcome is Outcome.WARN


def test_unreadable(node: Any) -> None:
    """Without the figures nothing can be told."""
    node.put("proc/meminfo", "MemTotal: 100 kB")
    assert node.check("swap").outcome is Outcome.ERROR
