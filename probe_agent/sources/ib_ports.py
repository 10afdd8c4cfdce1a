"""RDMA ports as sysfs shows them. Formats and counter widths: Linux drivers/infiniband/core/sysfs.c."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks.readers import ib
from probing_cluster.probe_agent.faults import gpus
from probing_cluster.probe_agent.sources import sysfs

CLASS = "/sys/class/infiniband"
LOW, INFO = records.Severity.LOW, records.Severity.INFO

COUNTERS: Mapping[str, tuple[int, records.Severity]] = {
    "symbol_error": (65535, INFO),
    "link_error_recovery": (255, INFO),
    "link_downed": (255, LOW),
    "port_rcv_errors": (65535, INFO),
    "local_link_integrity_errors": (15, LOW),
    "excessive_buffer_overrun_errors": (15, LOW),
}
"""Counter to the value it sticks at (they never wrap) and how bad a step of it is."""
HW_COUNTERS = (
    "rnr_nak_retry_err",
    "out_of_sequence",
    "packet_seq_err",
    "rx_icrc_encapsulated",
    "roce_slow_restart",
)

_PORT = rf"{CLASS}/([^/]+)/ports/(\d+)/.*"
_FILES = (
    "state",
    "phys_state",
    "rate",
    "link_layer",
    *(f"counters/{c}" for c in COUNTERS),
    *(f"hw_counters/{c}" for c in HW_COUNTERS),
)
READ = (*(f"{CLASS}/*/ports/*/{name}" for name in _FILES), f"{CLASS}/*/device/net/*/carrier_changes")
LINKS = (f"{CLASS}/*/device", f"{CLASS}/*/device/physfn")


@dataclass(frozen=True, kw_only=True)
class WatchedPort:
    """One port as read; None where a value could not be read."""

    hca: str
    port: int
    state: int | None
    phys_state: int | None
    rate_gbps: float | None
    speed: str
    ethernet: bool
    pci_bus_id: str | None
    netdevs: tuple[str, ...]
    counters: Mapping[str, int | None]
    carrier_changes: int | None

    @property
    def device(self) -> str:
        return self.hca if self.port == 1 else f"{self.hca}:{self.port}"

    @property
    def key(self) -> str:
        """What it is known by: its place on the PCI bus, for images and kernels name the same adapter differently."""
        return f"{self.pci_bus_id}:{self.port}" if self.pci_bus_id else self.device

    @property
    def up(self) -> bool:
        return self.state == ib.ACTIVE and self.phys_state in (ib.LINK_UP, None)

    @property
    def down(self) -> bool:
        return self.state == ib.DOWN or self.phys_state == ib.DISABLED

    @property
    def names(self) -> list[str]:
        """Everything a kernel line may call it."""
        aliases = [
            self.device,
            f"{self.hca}:{self.port}",
            *self.netdevs,
            self.pci_bus_id,
            gpus.pci_key(self.pci_bus_id),
        ]
        return [n for n in aliases if n]

    @property
    def kind(self) -> str:
        return "eth_link" if self.ethernet else "ib_link"


def parse(raw: Mapping[str, Any], exclude: tuple[str, ...] = ()) -> list[WatchedPort]:
    """The ports; virtual functions, scalable functions and excluded devices are left out."""
    virtual = {hca for (hca,) in sysfs.matching(raw, rf"{CLASS}/([^/]+)/device/physfn")}
    virtual |= {path.split("/")[4] for path, target in raw["links"].items() if ib.SCALABLE.search(target)}
    found = dict.fromkeys((hca, int(port)) for hca, port in sysfs.matching(raw, _PORT))
    return [
        _port(raw, hca, port)
        for hca, port in found
        if hca not in virtual and not any(fnmatch.fnmatchcase(hca, e) for e in exclude)
    ]


def _port(raw: Mapping[str, Any], hca: str, port: int) -> WatchedPort:
    base = f"{CLASS}/{hca}/ports/{port}"
    rate_gbps, speed = ib.parse_rate(sysfs.text(raw, f"{base}/rate"))
    net = [
        n for h, n in sysfs.matching(raw, rf"{CLASS}/([^/]+)/device/net/([^/]+)/carrier_changes") if h == hca
    ]
    changes = [sysfs.number(raw, f"{CLASS}/{hca}/device/net/{n}/carrier_changes") for n in net]
    counters = {c: sysfs.number(raw, f"{base}/counters/{c}") for c in COUNTERS}
    counters |= {c: sysfs.number(raw, f"{base}/hw_counters/{c}") for c in HW_COUNTERS}
    pci = raw["links"].get(f"{CLASS}/{hca}/device")
    return WatchedPort(
        hca=hca,
        port=port,
        state=ib.parse_state(sysfs.text(raw, f"{base}/state")),
        phys_state=ib.parse_state(sysfs.text(raw, f"{base}/phys_state")),
        rate_gbps=rate_gbps,
        speed=speed,
        ethernet=sysfs.text(raw, f"{base}/link_layer") == "Ethernet",
        pci_bus_id=pci
        if pci and re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", pci)
        else None,
        netdevs=tuple(net),
        counters=counters,
        carrier_changes=changes[port - 1] if 0 < port <= len(changes) else None,
    )
