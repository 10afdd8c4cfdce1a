"""Frequency governors."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

BASE = "sys/devices/system/cpu"


def test_governors(node: Any) -> None:
    """The wanted governor is ok, another warns with its policy."""
    node.put(f"{BASE}/cpufreq/policy0/scaling_governor", "performance")
    node.put(f"{BASE}/cpufreq/policy1/scaling_governor", "performance")
    assert node.check("cpu_governor").outcome is Outcome.OK
    node.put(f"{BASE}/cpufreq/policy1/scaling_governor", "powersave")
    finding = node.check("cpu_governor")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "policy1")


def test_per_cpu_files(node: Any) -> None:
    """The older place of the file is read too."""
    node.put(f"{BASE}/cpu0/cpufreq/scaling_governor", "ondemand")
    assert node.check("cpu_governor").device == "cpu0"


def test_no_governor(node: Any) -> None:
    """Without cpufreq there is nothing to judge."""
    assert node.check("cpu_governor").outcome is Outcome.ABSENT
