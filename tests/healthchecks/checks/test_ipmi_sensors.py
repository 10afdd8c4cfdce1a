"""The BMC's sensors."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

OK_ROWS = "FAN1             | 41h | ok  | 29.1 | 8000 RPM\nPS1 Status | C8h | ok | 10.1 | Presence detected\nX | 1h | ns | 1 | No Reading"


def sensors(node: Any, *rows: str) -> None:
    node.put("dev/ipmi0", "")
    node.tool("ipmitool", "\n".join((OK_ROWS, *rows)))


def test_in_order(node: Any) -> None:
    """Sensors in order are ok; those without reading are not counted."""
    sensors(node)
    assert node.check("ipmi_sensors").message == "2 sensors in order"


def test_out_of_order(node: Any) -> None:
    """Critical and failed parts fail, odd readings and lost redundancy warn, ignored ones are not judged."""
    sensors(node, "FAN2 | 42h | nc | 29.2 | 900 RPM")
    assert node.check("ipmi_sensors").outcome is Outcome.WARN
    sensors(node, "FAN2 | 42h | lcr | 29.2 | 300 RPM")
    assert node.check("ipmi_sensors").device == "FAN2"
    assert node.check("ipmi_sensors", ignore=["FAN2"]).outcome is Outcome.OK
    sensors(node, "PS2 Status | C9h | ok | 10.2 | Presence detected, Power Supply AC lost")
    assert (node.check("ipmi_sensors").outcome, node.check("ipmi_sensors").device) == (
        Outcome.WARN,
        "PS2 Status",
    )
    sensors(node, "PS2 Status | C9h | ok | 10.2 | Presence detected, Failure detected")
    assert node.check("ipmi_sensors").outcome is Outcome.FAIL


def test_no_answer(node: Any) -> None:
    """A BMC without an answer is an error; no BMC is absent."""
    assert node.check("ipmi_sensors").outcome is Outcome.ABSENT
    node.put("dev/ipmi0", "")
    node.tool("ipmitool", "", code=1, error="Get Device ID command failed")
    assert node.check("ipmi_sensors").outcome is Outcome.ERROR
