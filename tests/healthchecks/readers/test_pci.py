"""PCI functions from sysfs."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.healthchecks import findings, nodeview
from probing_cluster.healthchecks.readers import pci

H100 = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"


def test_kinds(node: Any) -> None:
    """GPUs, NVSwitches, HCAs and NVMe drives are told by vendor and class, from modalias or its parts."""
    node.pci("0000:1b:00.0", H100)
    node.pci("0000:07:00.0", "pci:v000010DEd000022A3sv000010DEsd000016C1bc06sc80i00")
    node.put("sys/bus/pci/devices/0000:18:00.0/vendor", "0x15b3")
    node.put("sys/bus/pci/devices/0000:18:00.0/device", "0x1021")
    node.put("sys/bus/pci/devices/0000:18:00.0/class", "0x020700")
    node.put("sys/bus/pci/devices/0000:0a:00.0/vendor", "0x144d")
    node.put("sys/bus/pci/devices/0000:0a:00.0/class", "0x010802")
    node.put("sys/bus/pci/devices/0000:ff:00.0/resource", "nothing known")
    found = {f.address: f for f in pci.functions(nodeview.NodeView(node.spec))}
    assert list(found) == ["0000:07:00.0", "0000:0a:00.0", "0000:18:00.0", "0000:1b:00.0"]
    assert found["0000:1b:00.0"].is_gpu
    assert found["0000:07:00.0"].is_nvswitch
    assert not found["0000:07:00.0"].is_gpu
    assert found["0000:18:00.0"].is_hca
    assert found["0000:0a:00.0"].is_nvme


def test_no_bus(node: Any) -> None:
    """A node without PCI says so."""
    with pytest.raises(findings.Absent):
        pci.functions(nodeview.NodeView(node.spec))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0000:5E:00.0", "0000:5e:00"),
        ("00000000:5e:00.0", "0000:5e:00"),
        ("PCI:0000:5e:00", "0000:5e:00"),
        ("gpu", "gpu"),
    ],
)
def test_addresses_compare_by_device(text: str, same: str) -> None:
    """Every spelling of an address compares by domain, bus and device."""
    assert pci.bus_device(text) == same
