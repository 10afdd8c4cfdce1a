"""InfiniBand and RoCE ports from sysfs: state, rate, error counters that saturate, flaps and drops over time.

Only a port that was once seen up is expected to be up; only one that is up is judged by its rate (a port that is down
shows the slowest). A port is known by its place on the PCI bus, so that another name of it is not another port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import baseline, gpus
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import ib_ports, polled
from probing_cluster.probe_agent.sources.ib_ports import WatchedPort

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
DOWN_LASTING = 2
"""Readings in a row a port must be down: a retraining of a second shows in link_downed and drains nothing."""
UNSETTLED_LASTING = 3
"""The same for a port that is neither up nor down (INIT, ARMED, polling), and for one that is gone."""
BOOT_GRACE_S = 600.0
"""After a boot ports come up late: until first seen up in this boot they are not missed."""
FLAPS, FLAP_WINDOW_S = 3, 12 * 3600.0
SYMBOL_ERRORS_PER_HOUR = 120
"""IBTA's 1e-12 at link speed; reported as information only, since sources disagree whether it is before or after FEC."""


async def read(
    reader: polled.NodeReader, memory: Mapping[str, Any], context: polled.PollContext
) -> Mapping[str, Any]:
    """The files of every port. What once answered EINVAL is left alone: reading it again only makes the driver complain."""
    skip = [*memory.get("unreadable", ()), *(f"{ib_ports.CLASS}/{name}/*" for name in context.exclude_hcas)]
    return await reader.files(ib_ports.READ, ib_ports.LINKS, skip)


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """Conditions of ports that were once up, and the steps of their counters."""
    ports = ib_ports.parse(raw, context.exclude_hcas)
    judgement = _PortJudgement(memory, context)
    judgement.follow(ports)
    for port in ports:
        judgement.port(port)
    judgement.missing(ports)
    refused = {p for p, why in raw["errors"].items() if why == "EINVAL" and "/counters/" in p}
    return judgement.result(ports, refused | set(judgement.unreadable))


class _PortJudgement:
    """One reading on the judge's desk."""

    def __init__(self, memory: Mapping[str, Any], context: polled.PollContext) -> None:
        same_boot = memory.get("boot_id") == context.boot_id
        self.context = context
        self.expected = {} if context.relearn else _by_place(memory.get("expected", {}))
        self.up_this_boot = set(memory.get("up_this_boot", ())) if same_boot else set()
        flaps = {} if context.cleared else memory.get("flaps", {})
        self.flaps: dict[str, list[float]] = {k: list(v) for k, v in flaps.items()}
        kept = same_boot and not context.cleared
        self.hours: dict[str, list[float]] = dict(memory.get("hours", {})) if kept else {}
        self.unreadable = list(memory.get("unreadable", ())) if same_boot else []
        self.was_up: dict[str, bool] = dict(memory.get("was_up", {})) if same_boot else {}
        self.counters = baseline.Baseline.of(memory, context.boot_id)
        self.streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})) if same_boot else {})
        self.now_s = context.now.timestamp()
        self.present: list[Condition] = []
        self.edges: list[ConditionEdge] = []
        self.unknown: set[str] = set()

    def port(self, port: WatchedPort) -> None:
        if port.state is None:
            self.unknown.add(port.device)
            return
        if port.up:
            self._learn(port)
        if port.key in self.expected:
            self._state(port)
        self._counters(port)
        self._flapping(port)
        self.was_up[port.device] = port.up

    def follow(self, ports: list[WatchedPort]) -> None:
        """Ports that have another place or name than before, and are the same.

        By name; those that this boot has not shown and that are not missed yet also by their number, where as many new
        ones of the kind are up.
        """
        there = {p.key: p for p in ports}
        fresh = {p.device: p for p in ports if p.key not in self.expected}
        lost = {k: e for k, e in self.expected.items() if k not in there}
        # The second function of a card goes into the bond that the first one shows.
        bonds = {gpus.pci_key(p.pci_bus_id) for p in ports if "bond" in p.hca and p.pci_bus_id}
        for key in [k for k, e in lost.items() if gpus.pci_key(e["pci_bus_id"]) in bonds]:
            del self.expected[key], lost[key]
        pairs = [(k, fresh[e["device"]]) for k, e in lost.items() if e["device"] in fresh]
        for kind in {e["kind"] for e in lost.values()} if not pairs else ():
            old = [k for k, e in lost.items() if e["kind"] == kind and self._unseen(k)]
            new = [p for p in fresh.values() if p.kind == kind and p.up]
            pairs += zip(old, new, strict=True) if len(old) == len(new) else ()
        for key, port in pairs:
            known = self.expected.pop(key)
            same = known if known["device"] == port.device else {**known, "rate_gbps": None}
            self.expected[port.key] = {**same, "device": port.device, "pci_bus_id": port.pci_bus_id}
            words = f"the RDMA port that was {known['device']} at {known['pci_bus_id'] or 'no PCI address'} is {port.key}"
            what = _condition(port, "moved", INFO, words)
            self.edges.append(ConditionEdge(what=what, value=f"{key}>{port.key}", latches=False))

    def _unseen(self, key: str) -> bool:
        missed = self.streaks.counts.get(f"{key}:missing", 0) >= UNSETTLED_LASTING
        return key not in self.up_this_boot and not missed

    def missing(self, ports: list[WatchedPort]) -> None:
        there, names = {p.key for p in ports}, {p.device for p in ports}
        for key, known in self.expected.items():
            gone = key not in there and not self._in_grace(key)
            if self.streaks.at_least(f"{key}:missing", UNSETTLED_LASTING, holds=gone):
                # Its name may be another's by now: they are counted anew when one is gone.
                device = key if known["device"] in names else known["device"]
                self.present.append(
                    Condition(
                        kind=known["kind"],
                        code="missing",
                        device=device,
                        severity=HIGH,
                        pci_bus_id=known.get("pci_bus_id"),
                        message=f"{device} is gone: there is no such RDMA device any more",
                    )
                )

    def result(self, ports: list[WatchedPort], unreadable: set[str]) -> Judgement:
        bad = {c.device for c in self.present if c.severity is HIGH}
        return Judgement(
            present=tuple(self.present),
            edges=tuple(self.edges),
            unknown=frozenset(self.unknown),
            healthy=frozenset(n for p in ports if p.up and p.device not in bad for n in p.names),
            state="ok" if ports or self.expected else "absent",
            memory={
                "boot_id": self.context.boot_id,
                "expected": self.expected,
                "up_this_boot": sorted(self.up_this_boot),
                "flaps": {k: v for k, v in self.flaps.items() if v},
                "hours": self.hours,
                "unreadable": sorted(unreadable),
                "was_up": self.was_up,
                "counters": self.counters.values,
                "streaks": self.streaks.counts,
            },
        )

    def _learn(self, port: WatchedPort) -> None:
        self.up_this_boot.add(port.key)
        known = self.expected.get(port.key, {})
        best = max(known.get("rate_gbps") or 0.0, _true_rate(port) or 0.0) or None
        self.expected[port.key] = {
            "device": port.device,
            "kind": port.kind,
            "pci_bus_id": port.pci_bus_id,
            "rate_gbps": best,
        }

    def _in_grace(self, key: str) -> bool:
        up_s = self.context.uptime_s
        return key not in self.up_this_boot and up_s is not None and up_s < BOOT_GRACE_S

    def _state(self, port: WatchedPort) -> None:
        waiting = not port.up and self._in_grace(port.key)
        down = self.streaks.at_least(f"{port.device}:down", DOWN_LASTING, holds=port.down and not waiting)
        loose = not port.up and not port.down and not waiting
        unsettled = self.streaks.at_least(f"{port.device}:unsettled", UNSETTLED_LASTING, holds=loose)
        words = f"state {port.state}, physical state {port.phys_state}"
        if down:
            self._stands(port, "down", HIGH, f"its link is down ({words})")
        elif unsettled:
            self._stands(port, "not_active", LOW, f"its link does not come up ({words})")
        best, rate = self.expected[port.key].get("rate_gbps"), _true_rate(port)
        slow = bool(best and rate and rate < best)
        if self.streaks.at_least(f"{port.device}:rate", UNSETTLED_LASTING, holds=slow):
            self._stands(
                port,
                "rate",
                LOW,
                f"runs at {rate:g} of {best:g} Gb/s",
                measured=rate,
                threshold=best,
                unit="gbps",
            )

    def _counters(self, port: WatchedPort) -> None:
        for name, value in port.counters.items():
            ceiling, severity = ib_ports.COUNTERS.get(name, (None, INFO))
            before = self.counters.values.get(f"{port.device}:{name}")
            moved = self.counters.move(f"{port.device}:{name}", value, ceiling=ceiling)
            if moved is None:
                continue
            if moved.saturated:
                self._stands(
                    port,
                    f"{name}_saturated",
                    INFO,
                    f"{name} stands at its ceiling of {ceiling}: further errors cannot be seen until it is cleared",
                )
            if not moved.delta or moved.was_reset:
                continue
            if name == "link_downed":
                self.flaps.setdefault(port.device, []).extend([self.now_s] * min(moved.delta, FLAPS))
            if severity is LOW or baseline.decade(moved.value) > baseline.decade(before or 0):
                self._step(port, name, severity, moved)
        self._symbols(port)

    def _symbols(self, port: WatchedPort) -> None:
        value = port.counters.get("symbol_error")
        if value is None:
            return
        began_s, at_start = self.hours.get(port.device, (self.now_s, float(value)))
        if self.now_s - began_s > 3600.0 or value < at_start or self.now_s < began_s:
            began_s, at_start = self.now_s, float(value)
        self.hours[port.device] = [began_s, at_start]
        grown = value - at_start
        if grown > SYMBOL_ERRORS_PER_HOUR:
            limit = float(SYMBOL_ERRORS_PER_HOUR)
            self._stands(
                port,
                "symbol_errors",
                INFO,
                f"{grown:.0f} symbol errors within an hour",
                measured=grown,
                threshold=limit,
                unit="count",
            )

    def _flapping(self, port: WatchedPort) -> None:
        """Downs by counter; by the carrier for Ethernet; by what was seen where the counter can no longer move."""
        carrier = self.counters.move(f"{port.device}:carrier", port.carrier_changes)
        downs = (
            (carrier.delta + 1) // 2 if carrier is not None and not carrier.was_reset and port.ethernet else 0
        )
        blind = (port.counters.get("link_downed") or 0) >= ib_ports.COUNTERS["link_downed"][0]
        if blind and port.up and self.was_up.get(port.device) is False:
            downs = max(downs, 1)
        times = self.flaps.setdefault(port.device, [])
        times.extend([self.now_s] * min(downs, FLAPS))
        if downs and port.ethernet and carrier is not None:
            self._step(port, "carrier_lost", LOW, carrier)
        recent = [t for t in times if 0 <= self.now_s - t <= FLAP_WINDOW_S][-100:]
        self.flaps[port.device] = recent
        if len(recent) >= FLAPS:
            hours = FLAP_WINDOW_S / 3600
            self._stands(
                port,
                "flapping",
                LOW,
                f"its link went down {len(recent)} times within {hours:.0f} hours",
                measured=float(len(recent)),
                threshold=float(FLAPS),
                unit="count",
            )

    def _stands(
        self, port: WatchedPort, code: str, severity: records.Severity, message: str, **more: Any
    ) -> None:
        self.present.append(_condition(port, code, severity, message, **more))

    def _step(
        self, port: WatchedPort, name: str, severity: records.Severity, moved: baseline.CounterChange
    ) -> None:
        message = f"{name} rose by {moved.delta} to {moved.value}"
        what = _condition(
            port,
            name,
            severity,
            message,
            measured=float(moved.delta),
            unit="count",
            # A port that was down between two readings is up again at the second: only it can tell.
            detail={"total": moved.value, "saturated": moved.saturated, "port_up": port.up},
        )
        self.edges.append(ConditionEdge(what=what, value=moved.position, latches=False))


def _condition(
    port: WatchedPort, code: str, severity: records.Severity, message: str, **more: Any
) -> Condition:
    return Condition(
        kind=port.kind,
        code=code,
        device=port.device,
        severity=severity,
        pci_bus_id=port.pci_bus_id,
        message=f"{port.device}: {message}",
        **more,
    )


def _by_place(kept: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is remembered of ports by their key; earlier versions remembered them by their names."""
    found: dict[str, dict[str, Any]] = {}
    for key, entry in kept.items():
        pci = entry.get("pci_bus_id")
        place = f"{pci}:{key.partition(':')[2] or '1'}" if pci else key
        found[key if "device" in entry else place] = {"device": key, "pci_bus_id": pci, **entry}
    return found


def _true_rate(port: WatchedPort) -> float | None:
    """The rate of a port that is up; None where the kernel does not know the speed and prints the slowest."""
    guessed = port.speed in ("", "SDR") and (port.rate_gbps or 0) <= 10
    return None if not port.up or guessed else port.rate_gbps


SOURCE = polled.Polled(
    name="infiniband",
    source="sysfs",
    read=read,
    judge=judge,
    reads="`/sys/class/infiniband`",
    stands="link down (2 readings), device gone (3) · not ACTIVE, slower than before, 3 downs in 12 h · counters at their ceiling, symbol errors",
)
