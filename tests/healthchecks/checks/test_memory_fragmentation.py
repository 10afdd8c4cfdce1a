"""Large free blocks."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

FREE = "Node 0, zone      DMA      0 0 0 0 0 0 0 0 1 1 3\nNode 0, zone   Normal 9216 6810 5122 3391 2204 1630 1102 804 {} 2 1"


def test_enough_and_too_few(node: Any) -> None:
    """Ten blocks of order 8 and more in the Normal zone are enough; the DMA zone does not count."""
    node.put("proc/buddyinfo", FREE.format(7))
    assert node.check("memory_fragmentation").outcome is Outcome.OK
    node.put("proc/buddyinfo", FREE.format(6))
    finding = node.check("memory_fragmentation")
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.WARN, "numa0", 9)


def test_no_normal_zone(node: Any) -> None:
    """Without a Normal zone there is nothing to judge."""
    node.put("proc/buddyinfo", "Node 0, zone DMA 1 2 3")
    assert node.check("memory_fragmentation").outcome is Outcome.ABSENT
