"""Links going down and coming back."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def losses(node: Any, number: int) -> None:
    node.hca("mlx5_0", **{"counters/link_downed": str(number)})


def test_one_warns_three_fail(node: Any) -> None:
    """Within the window one loss warns and the third fails; after the window all is well again."""
    losses(node, 7)
    assert node.check("ib_flap").outcome is Outcome.OK
    node.later(600)
    losses(node, 8)
    assert node.check("ib_flap").outcome is Outcome.WARN
    node.later(600)
    losses(node, 10)
    finding = node.check("ib_flap")
    assert (finding.outcome, finding.measured, finding.threshold) == (Outcome.FAIL, 3, 3)
    node.later(43201)
    assert node.check("ib_flap").outcome is Outcome.OK


def test_boot_grace(node: Any) -> None:
    """Losses in the first half hour after boot do not count, then or later."""
    node.up_s = 0.0
    node.later(60)
    losses(node, 1)
    node.check("ib_flap")
    node.later(60)
    losses(node, 5)
    assert "not judged yet" in node.check("ib_flap").message
    node.later(3600)
    assert node.check("ib_flap").outcome is Outcome.OK


def test_stuck_counter(node: Any) -> None:
    """A counter at its ceiling of 255 is said to be blind."""
    losses(node, 255)
    finding = node.check("ib_flap")
    assert finding.outcome is Outcome.WARN
    assert "255" in finding.message


def test_roce_counts_carrier_losses(node: Any) -> None:
    """An Ethernet port's losses come from its network interface."""
    node.hca("mlx5_0", link_layer="Ethernet")
    node.put("sys/class/infiniband/mlx5_0/device/net/ens1/ifindex", "4")
    node.put("sys/class/net/ens1/carrier_down_count", "1")
    node.check("ib_flap")
    node.later(300)
    node.put("sys/class/net/ens1/carrier_down_count", "4")
    assert node.check("ib_flap").outcome is Outcome.FAIL


def test_nothing_counts(node: Any) -> None:
    """Ports without such a counter, and nodes without ports, have nothing to judge."""
    node.hca("mlx5_0", **{"counters/link_downed": "N/A (no PMA)"})
    assert node.check("ib_flap").outcome is Outcome.ABSENT
