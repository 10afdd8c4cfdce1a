"""GPU and HBM temperatures."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome


@pytest.mark.parametrize(
    ("chip_c", "hbm_c", "outcome"),
    [
        (70, 80, Outcome.OK),
        (87, 80, Outcome.WARN),
        (89, 80, Outcome.FAIL),
        (70, 93, Outcome.WARN),
        (70, 95, Outcome.FAIL),
    ],
)
def test_against_the_gpus_own_limits(node: Any, chip_c: int, hbm_c: int, outcome: Outcome) -> None:
    """The GPU's slowdown temperature and HBM maximum warn at first, fail when they last; the margin below them warns."""
    node.have_gpus(2)
    node.gpu(1, temperature_c=chip_c, memory_temperature_c=hbm_c)
    first = node.check("gpu_temperature").outcome
    assert first is (Outcome.WARN if outcome is Outcome.FAIL else outcome)
    node.later(300)
    assert node.check("gpu_temperature").outcome is outcome


def test_a_limit_of_zero_is_none(node: Any) -> None:
    """So some boards answer for a limit that they do not have."""
    node.have_gpus(1, slowdown_c=0, memory_max_c=0)
    assert node.check("gpu_temperature", lasting_fail_s=0.0).outcome is Outcome.OK
    assert node.check("gpu_temperature", fail_c=30.0, lasting_fail_s=0.0).outcome is Outcome.FAIL


def test_the_sites_limits(node: Any) -> None:
    """The site's limits replace the GPU's own."""
    node.have_gpus(1, temperature_c=80)
    assert node.check("gpu_temperature", warn_c=75.0).outcome is Outcome.WARN
    finding = node.check("gpu_temperature", fail_c=78.0, lasting_fail_s=0.0)
    assert (finding.outcome, finding.measured, finding.threshold, finding.unit) == (Outcome.FAIL, 80, 78, "c")


def test_no_sensor(node: Any) -> None:
    """Without a GPU sensor there is nothing to judge; without an HBM sensor the GPU's is."""
    node.have_gpus(1, memory_temperature_c=None)
    assert node.check("gpu_temperature").outcome is Outcome.OK
    node.have_gpus(1, temperature_c=None)
    assert node.check("gpu_temperature").outcome is Outcome.ABSENT


def test_a_pause_starts_anew(node: Any) -> None:
    """A GPU that cooled down in between has not been hot for long."""
    node.have_gpus(1, temperature_c=90)
    node.check("gpu_temperature")
    node.gpu(0, temperature_c=60)
    node.later(300)
    assert node.check("gpu_temperature").outcome is Outcome.OK
    node.gpu(0, temperature_c=90)
    node.later(300)
    assert node.check("gpu_temperature").outcome is Outcome.WARN
