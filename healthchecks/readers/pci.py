"""PCI functions of the node, from sysfs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from probing_cluster.healthchecks import findings, nodeview

DEVICES = "/sys/bus/pci/devices"
NVIDIA, MELLANOX, AMD, INTEL = 0x10DE, 0x15B3, 0x1002, 0x8086

_MODALIAS = re.compile(
    r"pci:v([0-9A-F]{8})d([0-9A-F]{8})sv[0-9A-F]{8}sd[0-9A-F]{8}bc([0-9A-F]{2})sc([0-9A-F]{2})"
)


@dataclass(frozen=True, kw_only=True)
class PciFunction:
    """One PCI function."""

    address: str
    """`0000:5e:00.0`, as the directory is named."""
    vendor: int
    device_id: int
    class_code: int
    """Base class and subclass: 0x0302 is a 3D controller."""
    driver: str | None = None

    @property
    def is_gpu(self) -> bool:
        return self.vendor == NVIDIA and self.class_code >> 8 == 0x03

    @property
    def is_nvswitch(self) -> bool:
        return self.vendor == NVIDIA and self.class_code == 0x0680

    @property
    def is_nvme(self) -> bool:
        return self.class_code == 0x0108

    @property
    def is_hca(self) -> bool:
        return self.class_code in (0x0207, 0x0200, 0x0C06) and self.vendor == MELLANOX


def functions(node: nodeview.NodeView) -> list[PciFunction]:
    """Every PCI function; raises Absent where the node shows no PCI at all."""
    found = node.shared("pci.functions", lambda: _functions(node))
    if not found:
        raise findings.Absent("no PCI devices in sysfs")
    return found


def foreign_gpus(found: Sequence[PciFunction]) -> bool:
    """Whether GPUs or accelerators of another maker than NVIDIA are here to compute on.

    What Intel's processors bring is on bus 0, and the displays of BMCs are other makers' than AMD's and Intel's. A display
    of AMD's may be a processor's, too: beside GPUs of NVIDIA a display counts for nothing.
    """
    others = [
        f
        for f in found
        if f.vendor != NVIDIA and not (f.vendor == INTEL and f.address.partition(":")[2].startswith("00:"))
    ]
    if any(f.class_code in (0x0302, 0x0380) or f.class_code >> 8 == 0x12 for f in others):
        return True
    displays = any(f.class_code == 0x0300 and f.vendor in (AMD, INTEL) for f in others)
    return displays and not any(f.is_gpu for f in found)


def _functions(node: nodeview.NodeView) -> list[PciFunction]:
    found = (_function(node, address) for address in sorted(node.names(DEVICES)))
    return [f for f in found if f is not None]


def _function(node: nodeview.NodeView, address: str) -> PciFunction | None:
    base = f"{DEVICES}/{address}"
    parsed = parse_modalias(node.text(f"{base}/modalias"))
    if parsed is None:
        vendor, device, code = (node.number(f"{base}/{name}") for name in ("vendor", "device", "class"))
        if vendor is None or code is None:
            return None
        parsed = vendor, device or 0, code >> 8
    return PciFunction(
        address=address,
        vendor=parsed[0],
        device_id=parsed[1],
        class_code=parsed[2],
        driver=link_name(node, f"{base}/driver"),
    )


def parse_modalias(text: str | None) -> tuple[int, int, int] | None:
    """(vendor, device, class) of a PCI modalias; None when it is not one."""
    match = _MODALIAS.match(text or "")
    if match is None:
        return None
    return int(match[1], 16), int(match[2], 16), int(match[3] + match[4], 16)


def link_name(node: nodeview.NodeView, absolute: str) -> str | None:
    """The last part of where a sysfs link points; None without one."""
    try:
        return os.path.basename(os.readlink(node.path(absolute)))  # noqa: PTH115, PTH119
    except OSError:
        return None


def on_bus(node: nodeview.NodeView, address: str) -> bool | None:
    """Whether the function still answers configuration reads (all ones: it does not); None when not known."""
    try:
        with open(node.path(f"{DEVICES}/{address}/config"), "rb", buffering=0) as config:  # noqa: PTH123
            head = config.read(4)
    except OSError:
        return None
    return None if len(head) < 4 else head != b"\xff\xff\xff\xff"


def bus_device(address: str) -> str:
    """`0000:5e:00` of any spelling of an address, for comparison."""
    match = re.search(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})", address)
    return address.lower() if match is None else f"{int(match[1], 16):04x}:{match[2]}:{match[3]}".lower()
