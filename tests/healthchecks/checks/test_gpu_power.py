"""Power limits."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_own_default(node: Any) -> None:
    """The board's default limit is ok, a lower one warns."""
    node.have_gpus(2)
    assert node.check("gpu_power").outcome is Outcome.OK
    node.gpu(1, power_limit_w=500.0)
    finding = node.check("gpu_power")
    assert (finding.outcome, finding.device, finding.threshold) == (Outcome.WARN, "gpu1", 700)


def test_the_sites_limit(node: Any) -> None:
    """A site that caps its GPUs on purpose says so."""
    node.have_gpus(1, power_limit_w=500.0)
    assert node.check("gpu_power", limit_min_w=500.0).outcome is Outcome.OK


def test_no_limit(node: Any) -> None:
    """A GPU without a power limit has nothing to judge."""
    node.have_gpus(1, power_limit_w=None)
    assert node.check("gpu_power").outcome is Outcome.ABSENT
