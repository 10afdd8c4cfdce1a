"""Machine check exceptions."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def interrupts(node: Any, mce: int = 0, thermal: int = 0) -> None:
    node.put(
        "proc/interrupts",
        "            CPU0       CPU1\n  0:         10          0   IO-APIC    2-edge      timer\n"
        f"MCE:          0          {mce}   Machine check exceptions\nMCP:       4000       4000   Machine check polls\n"
        f"TRM:  {thermal}   0   Thermal event interrupts\nDFR:          0          0   Deferred Error APIC interrupts",
    )


def test_exceptions(node: Any) -> None:
    """No exception is ok however many polls there were; one on any CPU fails until cleared."""
    interrupts(node)
    assert node.check("mce").outcome is Outcome.OK
    interrupts(node, mce=1)
    assert node.check("mce").outcome is Outcome.FAIL
    node.memory["mce"]["cleared"] = node.memory["mce"]["last"]
    assert node.check("mce").outcome is Outcome.OK


def test_thermal_events(node: Any) -> None:
    """Many thermal events within a day warn."""
    interrupts(node)
    node.check("mce")
    node.later(300)
    interrupts(node, thermal=1001)
    assert node.check("mce").outcome is Outcome.WARN


def test_not_counted(node: Any) -> None:
    """A CPU without the row has nothing to judge."""
    node.put("proc/interrupts", "CPU0\n 1: 5 GIC")
    assert node.check("mce").outcome is Outcome.ABSENT
