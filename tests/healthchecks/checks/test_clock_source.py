"""The clock source."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_sources(node: Any) -> None:
    """A fast source is ok, a slow one warns, none is absent."""
    path = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    assert node.check("clock_source").outcome is Outcome.ABSENT
    node.put(path, "tsc")
    assert node.check("clock_source").outcome is Outcome.OK
    node.put(path, "hpet")
    assert node.check("clock_source").outcome is Outcome.WARN
