"""Load per CPU."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_per_cpu(node: Any) -> None:
    """A fully used node is ok, a crowded one warns."""
    node.put("sys/devices/system/cpu/online", "0-63")
    node.put("proc/loadavg", "300.0 200.0 64.0 5/900 1")
    assert node.check("load").outcome is Outcome.OK
    node.put("proc/loadavg", "1.0 200.0 300.0 5/900 1")
    assert (node.check("load").outcome, node.check("load").measured) == (Outcome.WARN, 4.69)


def test_unreadable(node: Any) -> None:
    """Without a load average nothing can be told."""
    assert node.check("load").outcome is Outcome.ERROR
