"""Memory and DIMMs that are there."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview


def meminfo(node: Any, gib: float) -> None:
    node.put("proc/meminfo", f"MemTotal:       {int(gib * 2**20)} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB")


def test_against_the_site(node: Any) -> None:
    """A little less than expected is the firmware's share; more than the tolerance less fails."""
    meminfo(node, 503.0)
    expected = 512 * 2**30
    assert node.check("memory_size", expected_bytes=expected).outcome is Outcome.OK
    meminfo(node, 480.0)
    finding = node.check("memory_size", expected_bytes=expected)
    assert (finding.outcome, finding.unit) == (Outcome.FAIL, "bytes")


def test_against_slurm(node: Any) -> None:
    """Without a site value Slurm's RealMemory stands; without both it is said that nothing is configured."""
    meminfo(node, 64)
    assert "no size is configured" in node.check("memory_size").message
    node.expected = nodeview.Expectations(memory_bytes=65 * 2**30)
    assert node.check("memory_size").outcome is Outcome.FAIL


def test_dimms(node: Any) -> None:
    """A DIMM that EDAC no longer sees fails; without EDAC the number is not judged."""
    meminfo(node, 64)
    assert node.check("memory_size", dimms=2).outcome is Outcome.OK
    node.put("sys/devices/system/edac/mc/mc0/dimm0/size", "32768")
    node.put("sys/devices/system/edac/mc/mc0/dimm1/size", "0")
    finding = node.check("memory_size", dimms=2)
    assert (finding.outcome, finding.measured, finding.threshold) == (Outcome.FAIL, 1, 2)


def test_unreadable(node: Any) -> None:
    """Without MemTotal nothing can be told."""
    assert node.check("memory_size").outcome is Outcome.ERROR
