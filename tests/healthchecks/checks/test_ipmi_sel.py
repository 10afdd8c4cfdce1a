"""The BMC's event log."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import memory, nodeview

TODAY = "03/11/2026 | 11:30:00"


def sel(node: Any, *entries: str) -> None:
    node.put("dev/ipmi0", "")
    node.tool("ipmitool", "\n".join(f" {i:x} | {e}" for i, e in enumerate(entries, 1)))


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ("Power Supply PS2 Status | Power Supply AC lost | Asserted", "power supply"),
        ("Memory #0x87 | Uncorrectable ECC (UnCorrectable ECC | DIMM A1) | Asserted", "memory"),
        ("Processor CPU1 | IERR | Asserted", "processor"),
        ("Critical Interrupt PCIe | PCI SERR | Asserted", "critical interrupt"),
        ("Critical Interrupt #0x8a | Bus Fatal Error | Asserted", "critical interrupt"),
        ("Temperature CPU Temp | Upper Critical going high | Asserted", "temperature"),
        ("Fan FAN3 | Lower Critical going low | Asserted", "fan"),
        ("Drive Slot / Bay HDD2 | Drive Fault | Asserted", "drive"),
    ],
)
def test_new_faults(node: Any, event: str, part: str) -> None:
    """A fault asserted within the window fails with the part it names; redundant parts only warn."""
    sel(node, f"{TODAY} | {event}")
    finding = node.check("ipmi_sel")
    redundant = part in ("power supply", "fan")
    assert (finding.outcome, finding.device) == (Outcome.WARN if redundant else Outcome.FAIL, part)


def test_old_undated_and_deasserted(node: Any) -> None:
    """Last year's fault, one from before the clock was set, and one that went away are no faults of today."""
    sel(
        node,
        "03/01/2025 | 11:30:00 | Power Supply PS2 | Power Supply AC lost | Asserted",
        "Pre-Init  |0000000037| Power Supply PS2 | Power Supply AC lost | Asserted",
        f"{TODAY} | Power Supply PS2 | Power Supply AC lost | Deasserted",
        f"{TODAY} | System Event | Timestamp Clock Sync | Asserted",
    )
    assert node.check("ipmi_sel").outcome is Outcome.OK


def test_cleared(node: Any) -> None:
    """A person clears the check, whatever the BMC's clock says; the next fault is a new one, and the log is never cleared."""
    old = f"{TODAY} | Drive Slot DISK1 | Drive Fault | Asserted"
    sel(node, old)
    assert node.check("ipmi_sel").outcome is Outcome.FAIL
    node.memory["ipmi_sel"] = memory.cleared(node.memory["ipmi_sel"])
    assert node.check("ipmi_sel").outcome is Outcome.OK
    sel(node, old, old)
    assert node.check("ipmi_sel").outcome is Outcome.FAIL


def test_nearly_full(node: Any) -> None:
    """A log that is nearly full warns."""
    sel(node, *[f"{TODAY} | System Event | Boot | Asserted"] * 12)
    assert node.check("ipmi_sel", full_warn=10).outcome is Outcome.WARN


def test_a_silent_bmc(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A BMC that fails or hangs is an error."""
    node.put("dev/ipmi0", "")
    node.tool("ipmitool", "", code=1, error="Could not open device")
    assert node.check("ipmi_sel").outcome is Outcome.ERROR
    node.tool("ipmitool", script="exec sleep 60")
    real = nodeview.NodeView.run
    monkeypatch.setattr(nodeview.NodeView, "run", lambda self, *a: real(self, *a, deadline_s=0.1))
    assert node.check("ipmi_sel").timed_out


def test_no_bmc(node: Any) -> None:
    """Without a BMC or without ipmitool there is nothing to judge."""
    assert node.check("ipmi_sel").outcome is Outcome.ABSENT
    node.put("dev/ipmi0", "")
    assert node.check("ipmi_sel").outcome is Outcome.ABSENT
