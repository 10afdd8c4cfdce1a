"""Caps and throttling of CPUs."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

BASE = "sys/devices/system/cpu"


def policy(node: Any, allowed_khz: int, possible_khz: int = 3_800_000) -> None:
    node.put(f"{BASE}/cpufreq/policy0/scaling_max_freq", str(allowed_khz))
    node.put(f"{BASE}/cpufreq/policy0/cpuinfo_max_freq", str(possible_khz))


def throttled(node: Any, count: int) -> None:
    for cpu in (0, 1):
        node.put(f"{BASE}/cpu{cpu}/topology/physical_package_id", "0")
        node.put(f"{BASE}/cpu{cpu}/thermal_throttle/package_throttle_count", str(count))


def test_capped(node: Any) -> None:
    """A policy allowed its full frequency is ok, a capped one warns; the site's figure stands above ours."""
    policy(node, 3_800_000)
    assert node.check("cpu_frequency").outcome is Outcome.OK
    policy(node, 2_000_000)
    finding = node.check("cpu_frequency")
    assert (finding.outcome, finding.measured, finding.unit) == (Outcome.WARN, 2000, "mhz")
    assert node.check("cpu_frequency", max_mhz=2000.0).outcome is Outcome.OK


def test_throttling(node: Any) -> None:
    """New throttle events of a package warn, counted once per package, and old totals do not."""
    throttled(node, 9000)
    assert node.check("cpu_frequency").outcome is Outcome.OK
    node.later(300)
    throttled(node, 9061)
    finding = node.check("cpu_frequency")
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.WARN, "package0", 61)


def test_not_told(node: Any) -> None:
    """A virtual machine tells neither: nothing to judge."""
    assert node.check("cpu_frequency").outcome is Outcome.ABSENT
