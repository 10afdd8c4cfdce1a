"""Clocks left low and low under load."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_an_idle_gpu_is_not_slow(node: Any) -> None:
    """An idle GPU's low clock is no finding, whatever the site's minimum."""
    node.have_gpus(8)
    assert node.check("gpu_clocks", sm_min_mhz=1155).outcome is Outcome.OK


def test_a_busy_gpu_below_the_minimum_warns(node: Any) -> None:
    """A busy GPU below the site's SM clock, or below its own memory clock, warns."""
    node.have_gpus(2, utilization_frac=1.0, sm_clock_mhz=1980)
    node.gpu(1, sm_clock_mhz=345)
    finding = node.check("gpu_clocks", sm_min_mhz=1155)
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.WARN, "gpu1", 345)
    node.gpu(1, sm_clock_mhz=1980, memory_clock_mhz=1593)
    assert "memory clock" in node.check("gpu_clocks").message


def test_a_forgotten_application_clock_warns(node: Any) -> None:
    """Application clocks below their default warn even when idle."""
    node.have_gpus(1, application_sm_mhz=1095)
    assert node.check("gpu_clocks").outcome is Outcome.WARN


def test_no_clocks(node: Any) -> None:
    """A GPU that does not tell its clocks has nothing to judge."""
    node.have_gpus(1, sm_clock_max_mhz=None)
    assert node.check("gpu_clocks").outcome is Outcome.ABSENT
