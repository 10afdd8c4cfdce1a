"""Slowdowns by heat and power."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_power_cap_and_idle_are_normal(node: Any) -> None:
    """A GPU at its power cap, or idle, is not slowed down."""
    node.have_gpus(2, throttle_reasons=0x4)
    assert node.check("gpu_throttle").outcome is Outcome.OK


def test_a_moment_warns_and_lasting_fails(node: Any) -> None:
    """A hardware slowdown warns at first, fails after ten minutes without a pause, and a pause starts it anew."""
    node.have_gpus(2)
    node.gpu(1, throttle_reasons=0x48)
    finding = node.check("gpu_throttle")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "gpu1")
    node.later(600)
    assert node.check("gpu_throttle").outcome is Outcome.FAIL
    node.gpu(1, throttle_reasons=0)
    assert node.check("gpu_throttle").outcome is Outcome.OK
    node.gpu(1, throttle_reasons=0x80)
    assert node.check("gpu_throttle").outcome is Outcome.WARN


def test_software_thermal_only_warns(node: Any) -> None:
    """A software thermal slowdown never fails, however long."""
    node.have_gpus(1, throttle_reasons=0x20)
    node.check("gpu_throttle")
    node.later(3600)
    assert node.check("gpu_throttle").outcome is Outcome.WARN


def test_not_told(node: Any) -> None:
    """A GPU that does not tell is absent; one that should and fails to is an error."""
    node.have_gpus(1, throttle_reasons=None)
    assert node.check("gpu_throttle").outcome is Outcome.ABSENT
    node.have_gpus(1, throttle_reasons=None, unread={"throttle_reasons": "TIMEOUT"})
    assert node.check("gpu_throttle").outcome is Outcome.ERROR
