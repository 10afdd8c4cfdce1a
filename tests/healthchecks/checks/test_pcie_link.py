"""Width, speed and presence on the PCIe bus."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome, Severity

GPU = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
NIC = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc07i00"
FULL = {
    "current_link_width": "16",
    "max_link_width": "16",
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
}


def test_full_width(node: Any) -> None:
    """Devices at full width and speed are ok; a GPU that idles at low speed too."""
    node.pci("0000:1b:00.0", GPU, **FULL | {"current_link_speed": "2.5 GT/s PCIe"})
    node.pci("0000:18:00.0", NIC, **FULL)
    assert node.check("pcie_link").outcome is Outcome.OK
    assert node.check("pcie_link", gpu_speed=True).outcome is Outcome.WARN


def test_narrow(node: Any) -> None:
    """A narrow link fails, low, with both widths."""
    node.pci("0000:18:00.0", NIC, **FULL | {"current_link_width": "8"})
    finding = node.check("pcie_link")
    assert (finding.outcome, finding.severity, finding.measured, finding.threshold) == (
        Outcome.FAIL,
        Severity.LOW,
        8,
        16,
    )


def test_slow_nic(node: Any) -> None:
    """A NIC below its speed warns."""
    node.pci("0000:18:00.0", NIC, **FULL | {"current_link_speed": "16.0 GT/s PCIe"})
    assert node.check("pcie_link").outcome is Outcome.WARN


def test_a_narrow_slot_is_no_fault(node: Any) -> None:
    """A x16 card behind a x8 port runs at x8 by design."""
    node.put("sys/devices/pci0000:17/0000:17:01.0/max_link_width", "8")
    node.put("sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/modalias", NIC)
    for name, text in (FULL | {"current_link_width": "8"}).items():
        node.put(f"sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/{name}", text)
    node.link("sys/bus/pci/devices/0000:18:00.0", "../../../devices/pci0000:17/0000:17:01.0/0000:18:00.0")
    assert node.check("pcie_link").outcome is Outcome.OK


def test_all_ones(node: Any) -> None:
    """A device whose configuration space reads all ones has left the bus: high."""
    node.pci("0000:1b:00.0", GPU, **FULL)
    (node.root / "sys/bus/pci/devices/0000:1b:00.0/config").write_bytes(b"\xff" * 64)
    finding = node.check("pcie_link")
    assert (finding.outcome, finding.severity) == (Outcome.FAIL, None)


def test_gone(node: Any) -> None:
    """A device of the site file that is not on the bus fails, high, even when it was the last one."""
    finding = node.check("pcie_link", devices=["0000:5e:00.0"])
    assert finding.outcome is Outcome.ABSENT  # no PCI bus at all: nothing is known
    node.pci("0000:00:00.0", "pci:v00008086d00000000sv00000000sd00000000bc06sc00i00")
    finding = node.check("pcie_link", devices=["0000:5e:00.0"])
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "0000:5e:00.0", None)


def test_unknown_link(node: Any) -> None:
    """A function that does not tell its link, as virtual ones do, is not judged."""
    node.pci("0000:18:00.1", NIC, current_link_width="0", max_link_width="255", current_link_speed="Unknown")
    assert node.check("pcie_link").outcome is Outcome.ABSENT


def test_no_bus(node: Any) -> None:
    """A node without PCI has nothing to judge."""
    assert node.check("pcie_link").outcome is Outcome.ABSENT


def test_virtual_functions_have_no_link(node: Any) -> None:
    """A virtual function's zeros are not a lost link."""
    node.pci("0000:18:00.1", NIC, **FULL | {"current_link_width": "0"})
    node.put("sys/bus/pci/devices/0000:18:00.1/physfn/vendor", "0x15b3")
    assert node.check("pcie_link").outcome is Outcome.ABSENT


def test_another_kind_of_link(node: Any) -> None:
    """A device that answers and has no lanes is behind a hypervisor's bus or NVLink: nothing to judge."""
    node.pci("0009:01:00.0", GPU, **FULL | {"current_link_width": "0"})
    (node.root / "sys/bus/pci/devices/0009:01:00.0/config").write_bytes(b"\xde\x10\x42\x23" * 16)
    assert node.check("pcie_link").outcome is Outcome.ABSENT


def test_no_lanes_left(node: Any) -> None:
    """A physical device that could have lanes and has none does not answer: high."""
    node.pci("0000:18:00.0", NIC, **FULL | {"current_link_width": "0"})
    finding = node.check("pcie_link")
    assert (finding.outcome, finding.severity) == (Outcome.FAIL, None)
