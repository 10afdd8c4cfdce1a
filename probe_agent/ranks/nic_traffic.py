"""How many bytes the node's network adapters moved while a gang stood still: a collective that is stuck moves none.

Port counters of RDMA devices (InfiniBand, RoCE) and of Ethernet adapters that are hardware. Read at each look at the
ranks, while there are any: their source in the poller (sources.infiniband) is left alone, since readings that differ
each time would have an idle node's ports judged anew at every round.
"""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import clock, processes
from probing_cluster.probe_agent.sources import ib_ports, polled, sysfs

NET = "/sys/class/net"
READ = (
    f"{ib_ports.CLASS}/*/ports/*/counters/port_xmit_data",
    f"{ib_ports.CLASS}/*/ports/*/counters/port_rcv_data",
    f"{NET}/*/statistics/tx_bytes",
    f"{NET}/*/statistics/rx_bytes",
)
LINKS = (f"{ib_ports.CLASS}/*/device/physfn", f"{NET}/*/device")
WORD_BYTES = 4
"""port_xmit_data and port_rcv_data count words of four octets (InfiniBand Architecture, PortCountersExtended)."""
KEPT = 256
"""Readings remembered: twenty minutes at the installed beat."""
LEAST_S = 1.0
"""A rate over less says nothing."""
MAX_PORTS = 64

Counts = Mapping[str, tuple[int, int]]
"""Port or adapter to bytes sent and received so far."""


@dataclass(frozen=True, kw_only=True)
class TrafficReading:
    """All adapters at one moment of the monotonic clock."""

    at_s: float
    counts: Counts


class NicTraffic:
    """The adapters of one node over the last minutes."""

    def __init__(
        self,
        reader: polled.NodeReader | None,
        *,
        exclude: tuple[str, ...] = (),
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        """`exclude` are patterns of devices to leave out; without a `reader` nothing is read."""
        self._reader = reader
        self._exclude = exclude
        self._clock = clock
        self._readings: deque[TrafficReading] = deque(maxlen=KEPT)

    async def read(self) -> None:
        """Takes one more reading; a node whose sysfs does not answer has none."""
        if self._reader is None:
            return
        try:
            raw = await self._reader.files(READ, LINKS)
        except processes.ChildFailed:
            return  # the poller tells of it
        self._readings.append(
            TrafficReading(at_s=self._clock.monotonic_s(), counts=parse(raw, self._exclude))
        )

    @property
    def readings(self) -> Sequence[TrafficReading]:
        """The remembered readings, oldest first."""
        return tuple(self._readings)

    def since(self, at_s: float) -> dict[str, Any]:
        """Rates from the first reading at or after that moment to the last; empty where there are none.

        `{"over_s", "ports": [{"device", "tx_bytes_per_s", "rx_bytes_per_s"}, …]}`.
        """
        last = self._readings[-1] if self._readings else None
        first = next((r for r in self._readings if r.at_s >= at_s), None)
        if first is None or last is None or last.at_s - first.at_s < LEAST_S:
            return {}
        over_s = last.at_s - first.at_s
        ports = [
            {
                "device": device,
                "tx_bytes_per_s": round((now[0] - then[0]) / over_s),
                "rx_bytes_per_s": round((now[1] - then[1]) / over_s),
            }
            for device, now in sorted(last.counts.items())
            # A counter that went back was cleared or has wrapped: what moved is not known.
            if (then := first.counts.get(device)) is not None and now[0] >= then[0] and now[1] >= then[1]
        ]
        return {"over_s": round(over_s, 3), "ports": ports[:MAX_PORTS]} if ports else {}


def parse(raw: Mapping[str, Any], exclude: tuple[str, ...] = ()) -> dict[str, tuple[int, int]]:
    """Bytes so far of every port and adapter whose two counters could be read; virtual ones are left out."""
    virtual = {hca for (hca,) in sysfs.matching(raw, rf"{ib_ports.CLASS}/([^/]+)/device/physfn")}
    hardware = {name for (name,) in sysfs.matching(raw, rf"{NET}/([^/]+)/device")}
    found: dict[str, tuple[int, int]] = {}
    for hca, port in sysfs.matching(raw, rf"{ib_ports.CLASS}/([^/]+)/ports/(\d+)/counters/port_xmit_data"):
        base = f"{ib_ports.CLASS}/{hca}/ports/{port}/counters"
        sent, received = (sysfs.number(raw, f"{base}/{n}") for n in ("port_xmit_data", "port_rcv_data"))
        if hca not in virtual and not _excluded(hca, exclude) and sent is not None and received is not None:
            found[hca if port == "1" else f"{hca}:{port}"] = (sent * WORD_BYTES, received * WORD_BYTES)
    for (name,) in sysfs.matching(raw, rf"{NET}/([^/]+)/statistics/tx_bytes"):
        base = f"{NET}/{name}/statistics"
        sent, received = (sysfs.number(raw, f"{base}/{n}") for n in ("tx_bytes", "rx_bytes"))
        if name in hardware and sent is not None and received is not None:
            found[name] = (sent, received)
    return found


def _excluded(hca: str, exclude: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(hca, e) for e in exclude)
