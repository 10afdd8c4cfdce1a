"""PCIe replays of GPUs."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_growth_not_totals(node: Any) -> None:
    """A large old total is ok, fast growth warns."""
    node.have_gpus(1, pcie_replays_total=50_000)
    assert node.check("gpu_pcie_replay").outcome is Outcome.OK
    node.later(300)
    node.have_gpus(1, pcie_replays_total=50_481)
    finding = node.check("gpu_pcie_replay")
    assert (finding.outcome, finding.measured) == (Outcome.WARN, 481)


def test_first_look_counts_from_boot(node: Any) -> None:
    """At the first look the mean since boot is judged, and said to be that."""
    node.have_gpus(1, pcie_replays_total=480 * 24 * 11)
    finding = node.check("gpu_pcie_replay")
    assert finding.outcome is Outcome.WARN
    assert "since boot" in finding.message


def test_not_counted(node: Any) -> None:
    """A GPU without the counter has nothing to judge."""
    node.have_gpus(1, pcie_replays_total=None)
    assert node.check("gpu_pcie_replay").outcome is Outcome.ABSENT
