"""The kernel."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_release(node: Any) -> None:
    """Any kernel is ok until the site names some; patterns are allowed."""
    node.put("proc/sys/kernel/osrelease", "5.15.0-1053-nvidia")
    assert node.check("kernel_version").message == "kernel 5.15.0-1053-nvidia"
    assert node.check("kernel_version", expected=["5.15.0-*"]).outcome is Outcome.OK
    assert node.check("kernel_version", expected=["6.8.0-31-generic"]).outcome is Outcome.FAIL


def test_unreadable(node: Any) -> None:
    """Without a release nothing can be told."""
    assert node.check("kernel_version").outcome is Outcome.ERROR
