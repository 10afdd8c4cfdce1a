"""Time since boot."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_ages(node: Any) -> None:
    """Days are ok, minutes warn, and so does more than the site likes."""
    assert node.check("uptime").outcome is Outcome.OK
    assert node.check("uptime", old_warn_s=86400.0).outcome is Outcome.WARN
    node.up_s = 0.0
    node.later(120)
    assert node.check("uptime").message == "booted 2 min ago"


def test_unreadable(node: Any) -> None:
    """Without /proc/uptime nothing can be told."""
    (node.root / "proc/uptime").unlink()
    assert node.check("uptime").outcome is Outcome.ERROR
