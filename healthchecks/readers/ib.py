"""RDMA ports of the node, from /sys/class/infiniband. Formats: Linux drivers/infiniband/core/sysfs.c."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.healthchecks import findings, nodeview
from probing_cluster.healthchecks.readers import pci

CLASS = "/sys/class/infiniband"

DOWN, INIT, ARMED, ACTIVE = 1, 2, 3, 4
DISABLED, LINK_UP = 3, 5

SCALABLE = re.compile(r"\.sf\.\d+$")
"""The device of a scalable function (`mlx5_core.sf.4`): made and removed at will, as virtual functions are."""
_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*Gb/sec(?:\s*\(([0-9]+)X\s*([A-Z0-9]*)\))?")


@dataclass(frozen=True, kw_only=True)
class IbPort:
    """One port of one HCA. Numbers, not the words after them: some kernels pair them wrongly."""

    hca: str
    port: int
    state: int | None
    phys_state: int | None
    rate_gbps: float | None
    speed: str
    """NDR, HDR …; SDR also stands for "this kernel does not know the speed"."""
    link_layer: str
    firmware: str | None = None
    board: str | None = None
    virtual: bool = False
    """An SR-IOV virtual function, or a scalable one."""

    @property
    def name(self) -> str:
        return f"{self.hca}:{self.port}"

    @property
    def up(self) -> bool:
        return self.state == ACTIVE and self.phys_state in (LINK_UP, None)

    @property
    def waiting(self) -> bool:
        """The link is there and the subnet manager has not configured it yet (or is away)."""
        return self.state in (INIT, ARMED) and self.phys_state == LINK_UP

    @property
    def rate_known(self) -> bool:
        """Whether `rate_gbps` can be judged: only on a live port, and not where the kernel guesses SDR."""
        return (
            self.up
            and self.rate_gbps is not None
            and not (self.speed in ("", "SDR") and self.rate_gbps <= 10)
        )


def parse_state(text: str | None) -> int | None:
    """4 of `4: ACTIVE`; None when it is not a number."""
    return nodeview.to_int((text or "").partition(":")[0].strip())


def parse_rate(text: str | None) -> tuple[float | None, str]:
    """(400.0, "NDR") of `400 Gb/sec (4X NDR)`; (None, "") when it is not a rate."""
    match = _RATE.match(text or "")
    return (float(match[1]), match[3] or "") if match else (None, "")


def ports(node: nodeview.NodeView) -> list[IbPort]:
    """Every port of every HCA; raises Absent on a node without one."""
    found = node.shared("ib.ports", lambda: _ports(node))
    if not found:
        raise findings.Absent("no RDMA device on this node")
    return found


def _ports(node: nodeview.NodeView) -> list[IbPort]:
    found: list[IbPort] = []
    for hca in node.names(CLASS):
        base = f"{CLASS}/{hca}"
        firmware, board = node.text(f"{base}/fw_ver"), node.text(f"{base}/board_id")
        virtual = node.exists(f"{base}/device/physfn") or bool(
            SCALABLE.search(pci.link_name(node, f"{base}/device") or "")
        )
        for number in node.names(f"{base}/ports"):
            at = f"{base}/ports/{number}"
            rate, speed = parse_rate(node.text(f"{at}/rate"))
            found.append(
                IbPort(
                    hca=hca,
                    port=nodeview.to_int(number) or 0,
                    state=parse_state(node.text(f"{at}/state")),
                    phys_state=parse_state(node.text(f"{at}/phys_state")),
                    rate_gbps=rate,
                    speed=speed,
                    link_layer=node.text(f"{at}/link_layer") or "Unknown",
                    firmware=(firmware or "").strip() or None,
                    board=(board or "").strip() or None,
                    virtual=virtual,
                )
            )
    return found
