"""Xids of this boot, since cleared."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome, Severity
from probing_cluster.healthchecks import memory

LOST = "NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, name=python, GPU has fallen off the bus."
USER = "NVRM: Xid (PCI:0000:5e:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault"


@pytest.fixture
def driver(node: Any) -> Any:
    """A node with the driver loaded and an empty kernel log."""
    node.put("proc/driver/nvidia/version", "NVRM version: 550.90.07")
    node.log("Linux version 5.15", priority=5)
    return node


def test_quiet_log(driver: Any) -> None:
    """A kernel log without Xids is ok."""
    assert driver.check("gpu_xid").outcome is Outcome.OK


def test_hardware_xid_fails_until_cleared(driver: Any) -> None:
    """An Xid 79 fails high at this and every later look, until a person clears it; a new one fails again."""
    driver.log(LOST)
    first = driver.check("gpu_xid")
    assert (first.outcome, first.device) == (Outcome.FAIL, "0000:5e:00")
    assert first.severity is Severity.HIGH
    assert driver.check("gpu_xid").outcome is Outcome.FAIL
    driver.later(60)
    driver.memory["gpu_xid"] = memory.cleared(driver.memory["gpu_xid"])
    assert driver.check("gpu_xid").outcome is Outcome.OK
    driver.log(LOST)
    assert driver.check("gpu_xid").outcome is Outcome.FAIL


def test_user_xids_are_no_fault(driver: Any) -> None:
    """Xid 31 is a program's own: kept, shown, never a failure."""
    driver.log(USER)
    finding = driver.check("gpu_xid")
    assert finding.outcome is Outcome.OK
    assert "31" in finding.message


def test_repeats_are_counted(driver: Any) -> None:
    """The same Xid on the same GPU many times is one finding with its number."""
    for _ in range(3):
        driver.log(LOST)
    assert "3 times" in driver.check("gpu_xid").message


def test_the_site_has_the_last_word(driver: Any) -> None:
    """Codes the site ignores are not judged, codes it calls low are low."""
    driver.log(LOST)
    assert driver.check("gpu_xid", ignore=["79"]).outcome is Outcome.OK
    assert driver.check("gpu_xid", low=["79"]).severity is Severity.LOW


def test_a_forged_line_changes_nothing(driver: Any) -> None:
    """A process that writes an Xid to /dev/kmsg (facility not 0) is not believed."""
    driver.log(LOST, priority=12)
    assert driver.check("gpu_xid").outcome is Outcome.OK


def test_no_log_or_no_driver(node: Any) -> None:
    """Without a kernel log, or without the driver, there is nothing to judge."""
    assert node.check("gpu_xid").outcome is Outcome.ABSENT
    node.log("Linux version 5.15", priority=5)
    assert node.check("gpu_xid").outcome is Outcome.ABSENT
