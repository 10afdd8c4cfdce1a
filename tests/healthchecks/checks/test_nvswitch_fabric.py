"""The fabric manager and what it registered."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

SWITCH = "pci:v000010DEd000022A3sv000010DEsd000016C1bc06sc80i00"


def test_registered(node: Any) -> None:
    """Registered GPUs are ok, with and without visible switches."""
    node.have_gpus(8)
    assert node.check("nvswitch_fabric").outcome is Outcome.OK
    node.pci("0000:07:00.0", SWITCH)
    node.process(100, "nv-fabricmanage")
    finding = node.check("nvswitch_fabric")
    assert finding.outcome is Outcome.OK
    assert "NVSwitches: 1" in finding.message


def test_no_manager(node: Any) -> None:
    """NVSwitches without a running fabric manager fail, low."""
    node.have_gpus(8, fabric_state=0)
    node.pci("0000:07:00.0", SWITCH)
    node.process(100, "systemd")
    finding = node.check("nvswitch_fabric")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "fabricmanager")


def test_not_registered(node: Any) -> None:
    """A GPU still registering, or refused, fails."""
    node.have_gpus(8)
    node.gpu(2, fabric_state=2)
    assert node.check("nvswitch_fabric").device == "gpu2"
    node.gpu(2, fabric_state=3, fabric_status=999)
    assert node.check("nvswitch_fabric").outcome is Outcome.FAIL


def test_registering_after_a_boot(node: Any) -> None:
    """That takes minutes: a warning at first, a failure once it lasts; one that was refused fails at once."""
    node.up_s = 0.0
    node.later(200)
    node.have_gpus(8)
    node.gpu(2, fabric_state=2)
    assert node.check("nvswitch_fabric").outcome is Outcome.WARN
    node.gpu(3, fabric_status=999)
    assert node.check("nvswitch_fabric").device == "gpu3"
    node.gpu(3, fabric_status=0)
    node.later(500)
    assert node.check("nvswitch_fabric").outcome is Outcome.FAIL


def test_degraded_warns(node: Any) -> None:
    """Degraded bandwidth or an unhealthy route is a warning."""
    node.have_gpus(1, fabric_health_mask=0x1)
    assert node.check("nvswitch_fabric").outcome is Outcome.WARN
    node.have_gpus(1, fabric_health_mask=0x10)
    assert node.check("nvswitch_fabric").outcome is Outcome.WARN


def test_missing_switch(node: Any) -> None:
    """Fewer switches than the site file says fail."""
    node.have_gpus(8)
    node.pci("0000:07:00.0", SWITCH)
    finding = node.check("nvswitch_fabric", switches=4)
    assert (finding.outcome, finding.measured, finding.threshold) == (Outcome.FAIL, 1, 4)


def test_no_fabric(node: Any) -> None:
    """GPUs that are no part of a fabric have nothing to judge."""
    node.have_gpus(8, fabric_state=0)
    assert node.check("nvswitch_fabric").outcome is Outcome.ABSENT
