"""GPUs, HCAs and NVMe drives are on the PCIe bus at their full width and speed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import pci

UNKNOWN_WIDTH = 255
"""What sysfs shows where the link capability cannot be read."""


@dataclass(frozen=True, kw_only=True)
class PcieLink:
    """One device's link. The maximum is what the device and the port above it can both do; None = not known."""

    address: str
    kind: str
    answers: bool | None
    width: int | None
    width_max: int | None
    speed_gt: float | None
    speed_max_gt: float | None


def parse_speed(text: str | None) -> float | None:
    """16.0 of `16.0 GT/s PCIe`; None for `Unknown`."""
    match = re.match(r"([0-9]+(?:\.[0-9]+)?) ?GT/s", text or "")
    return float(match[1]) if match else None


def read(node: nodeview.NodeView) -> list[PcieLink]:
    found = [
        _link(node, f) for f in pci.functions(node) if f.is_gpu or f.is_hca or f.is_nvme or f.is_nvswitch
    ]
    physical = [link for link in found if link is not None]
    if not physical and not node.limits["devices"]:
        raise findings.Absent("no GPU, HCA or NVMe drive on the PCI bus")
    return physical


def _link(node: nodeview.NodeView, function: pci.PciFunction) -> PcieLink | None:
    base = f"{pci.DEVICES}/{function.address}"
    if node.exists(f"{base}/physfn"):
        return None  # a virtual function has no link of its own and answers zeros
    # The directory is a link into the tree of bridges: the port above is the parent directory.
    above = Path(os.path.realpath(node.path(base))).parent
    kind = (
        "gpu" if function.is_gpu else "hca" if function.is_hca else "nvme" if function.is_nvme else "nvswitch"
    )
    own = node.number(f"{base}/max_link_width")
    width_known = own is not None and 0 < own < UNKNOWN_WIDTH
    port = nodeview.to_int(nodeview.read_text(f"{above}/max_link_width"))
    texts = (node.text(f"{base}/max_link_speed"), nodeview.read_text(f"{above}/max_link_speed"))
    speeds = [speed for text in texts if (speed := parse_speed(text)) is not None]
    return PcieLink(
        address=function.address,
        kind=kind,
        answers=pci.on_bus(node, function.address),
        width=node.number(f"{base}/current_link_width") if width_known else None,
        width_max=min(w for w in (own, port) if w is not None and 0 < w < UNKNOWN_WIDTH)
        if width_known
        else None,
        speed_gt=parse_speed(node.text(f"{base}/current_link_speed")),
        speed_max_gt=min(speeds, default=None),
    )


def judge(links: list[PcieLink], limits: registry.Limits) -> findings.Finding:
    there = {link.address for link in links}
    parts = [
        findings.fail(f"{address} is not on the bus", device=address, detail={"pci_bus_id": address})
        for address in limits["devices"]
        if address not in there
    ]
    parts += [_one(link, limits) for link in links if link.address not in limits["ignore"]]
    return findings.merge(parts, healthy=f"{len(links)} devices at full width")


def _one(link: PcieLink, limits: registry.Limits) -> findings.Finding:
    what = f"{link.kind} {link.address}"
    facts = {"device": link.address, "detail": {"pci_bus_id": link.address}}
    if link.answers is False or (link.width == 0 and link.answers is None):
        return findings.fail(f"{what} does not answer on the bus", **facts)
    # One that answers without a lane has another link: a hypervisor's bus, NVLink to a Grace.
    if not link.width or link.width_max is None:
        return findings.absent(f"{what} does not tell its link", **facts)
    if link.width < link.width_max:
        text, low = f"{what} runs x{link.width} of x{link.width_max}", records.Severity.LOW
        lanes = findings.amount(link.width, link.width_max, "lanes")
        return findings.fail(text, severity=low, **lanes, **facts)
    # An idle GPU lowers its link speed to save power; only the others must always run at full speed.
    slow = link.speed_gt is not None and link.speed_max_gt is not None and link.speed_gt < link.speed_max_gt
    if slow and (link.kind != "gpu" or limits["gpu_speed"]):
        text = f"{what} runs at {link.speed_gt:g} of {link.speed_max_gt:g} GT/s"
        return findings.warn(text, measured=link.speed_gt, threshold=link.speed_max_gt, unit="gt_s", **facts)
    return findings.ok(what, **facts)


CHECK = registry.Check(
    proves="Every GPU, HCA, NVMe drive and NVSwitch is on the PCIe bus with all its lanes.",
    component="pcie",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="fabric",
    hard=True,
    fails="a device of the site file is gone or a device answers all ones (high); a link is narrower than both its ends can do (low)",
    warns="a link is slower than both its ends can do (idle GPUs excepted)",
    needs="a GPU, HCA or NVMe drive on the PCI bus",
    next_step="Reseat the card or its riser and look at pcie_aer; a device that is gone needs a power cycle first.",
    read=read,
    judge=judge,
    learn=lambda links: {"devices": [link.address for link in links]},
    thresholds=(
        registry.Threshold(
            "devices",
            [],
            "",
            "addresses that must be on the bus, as 0000:3b:00.0",
            "site (genconf); GCM check-pci manifest",
        ),
        registry.Threshold("ignore", [], "", "addresses never judged", "site"),
        registry.Threshold(
            "gpu_speed",
            False,
            "",
            "whether GPUs must run at full speed when idle too",
            "ours: link speed follows the power state",
        ),
    ),
)
