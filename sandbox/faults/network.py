"""Faults of the network: InfiniBand and Ethernet links."""

from __future__ import annotations

import time

from probing_cluster.core import errors
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.nodetree import kmsg, sysfs, writing

_COUNTER_MAX = {"link_downed": 255, "link_error_recovery": 255, "local_link_integrity_errors": 15,
                "excessive_buffer_overrun_errors": 15, "symbol_error": 65_535, "port_rcv_errors": 65_535}  # fmt: skip
"""These counters stop at their maximum, as the hardware's do."""


@registry.fault("ib-down")
def ib_down(target: registry.Target, hca: str) -> None:
    """An InfiniBand port goes down and stays down."""
    _set_link(target, hca, up=False)


@registry.fault("ib-up")
def ib_up(target: registry.Target, hca: str) -> None:
    """An InfiniBand port comes up again; its counters keep what they counted."""
    _set_link(target, hca, up=True)


@registry.fault("ib-flap")
def ib_flap(target: registry.Target, hca: str, *, times: int = 3, gap_s: float = 0.2) -> None:
    """An InfiniBand port goes down and comes up, several times."""
    for _ in range(times):
        ib_down(target, hca)
        time.sleep(gap_s)
        ib_up(target, hca)
        time.sleep(gap_s)


@registry.fault("ib-errors")
def ib_errors(target: registry.Target, hca: str, *, counter: str = "symbol_error", count: int = 200) -> None:
    """An error counter of an InfiniBand port rises."""
    if counter not in sysfs.IB_COUNTERS:
        raise errors.NotFound(f"no counter {counter!r}; there are {' '.join(sysfs.IB_COUNTERS)}")
    _raise_counter(target, target.hca(hca).name, counter, count)


@registry.fault("eth-down")
def eth_down(target: registry.Target, *, interface: str = "eno1") -> None:
    """An Ethernet link loses its carrier."""
    where = f"sys/class/net/{interface}"
    for name, value in {"carrier": "0", "operstate": "down", "speed": "-1"}.items():
        writing.put(target.root, f"{where}/{name}", value)
    _bump(target, f"{where}/carrier_changes")
    _bump(target, f"{where}/carrier_down_count")
    target.kernel(f"ixgbe 0000:29:00.0 {interface}: NIC Link is Down", level=kmsg.ERROR)


def _set_link(target: registry.Target, name: str, *, up: bool) -> None:
    hca = target.hca(name)
    port, net = f"sys/class/infiniband/{hca.name}/ports/1", f"sys/class/net/{hca.netdev}"
    # A port that is down shows the slowest rate there is.
    values = {
        f"{port}/state": "4: ACTIVE" if up else "1: DOWN",
        f"{port}/phys_state": "5: LinkUp" if up else "2: Polling",
        f"{port}/rate": sysfs.IB_RATE if up else "10 Gb/sec (4X SDR)",
        f"{net}/operstate": "up" if up else "down",
        f"{net}/carrier": "1" if up else "0",
    }
    for path, value in values.items():
        writing.put(target.root, path, value)
    if not up:
        _raise_counter(target, hca.name, "link_downed", 1)
    _bump(target, f"{net}/carrier_changes")
    _bump(target, f"{net}/carrier_{'up' if up else 'down'}_count")
    target.kernel(f"mlx5_core {hca.pci} {hca.netdev}: Link {'up' if up else 'down'}", level=kmsg.INFO)


def _raise_counter(target: registry.Target, hca: str, counter: str, count: int) -> None:
    _bump(target, f"sys/class/infiniband/{hca}/ports/1/counters/{counter}", count, _COUNTER_MAX.get(counter))


def _bump(target: registry.Target, path: str, count: int = 1, ceiling: int | None = None) -> None:
    value = int((target.root / path).read_text()) + count
    writing.put(target.root, path, str(value if ceiling is None else min(value, ceiling)))
