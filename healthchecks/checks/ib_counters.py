"""InfiniBand error counters: their growth, never their lifetime value, and never a saturated one taken for healthy."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import ib

CEILING = {
    "symbol_error": 65535, "link_error_recovery": 255, "port_rcv_errors": 65535, "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15, "port_xmit_discards": 65535,
}  # fmt: skip
"""The counters read, and the value at which each sticks (Linux drivers/infiniband/core/sysfs.c)."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Growth by `mlx5_0:1 symbol_error`, the counters at their ceiling, those that could not be read."""

    grown: counters.Growth
    stuck: tuple[str, ...]
    unreadable: int
    ports: int


def read(node: nodeview.NodeView) -> Reading:
    values: dict[str, int | None] = {}
    ports = [p for p in ib.ports(node) if not p.virtual and not {p.hca, p.name} & set(node.limits["ignore"])]
    for port in ports:
        base = f"{ib.CLASS}/{port.hca}/ports/{port.port}"
        for name in CEILING:
            values[f"{port.name} {name}"] = node.number(f"{base}/counters/{name}")
    stuck = tuple(k for k, v in values.items() if v is not None and v >= CEILING[k.partition(" ")[2]])
    unreadable = sum(v is None for v in values.values())
    if ports and unreadable == len(values):
        raise findings.Absent("no port has readable error counters")
    return Reading(grown=counters.growth(node, values), stuck=stuck, unreadable=unreadable, ports=len(ports))


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    when = "since boot" if reading.grown.first else "since the last look"
    for key, count in reading.grown.by_key.items():
        name, _, counter = key.partition(" ")
        rate, most = reading.grown.per_hour(key), limits[f"{counter}_per_hour"]
        if count and rate > most:
            text = f"{name}: {count} {counter} {when}"
            facts = {
                "device": name.partition(":")[0],
                "measured": round(rate, 1),
                "threshold": most,
                "unit": "per_hour",
            }
            parts.append(findings.warn(text, **facts))
    for key in reading.stuck:
        name, _, counter = key.partition(" ")
        text = f"{name}: {counter} is stuck at its ceiling {CEILING[counter]} and blind until reset (perfquery -R)"
        parts.append(findings.warn(text, device=name.partition(":")[0]))
    note = f", {reading.unreadable} counters unreadable" if reading.unreadable else ""
    return findings.merge(parts, healthy=f"error counters of {reading.ports} ports quiet{note}")


def _limit(counter: str, per_hour: float, source: str) -> registry.Threshold:
    meaning = f"{counter} per port and hour above which we warn"
    return registry.Threshold(f"{counter}_per_hour", per_hour, "per_hour", meaning, source)


CHECK = registry.Check(
    proves="No RDMA port collects errors faster than a healthy cable does.",
    component="ib",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="fabric",
    fails="never by default limits; link state is the business of ib_link, flaps of ib_flap",
    warns="a counter grows faster than its limit, or is stuck at its ceiling",
    needs="an RDMA port with readable counters",
    next_step="mlxlink shows the bit error rate of the port; clean or replace the cable, then the transceiver.",
    read=read,
    judge=judge,
    thresholds=(
        _limit("symbol_error", 120.0, "NVSentinel: 120 per hour (IBTA bit error rate 1e-12)"),
        _limit(
            "link_error_recovery",
            5.0,
            "NVSentinel: 5 per minute is degraded; a healthy link has none for days",
        ),
        _limit("port_rcv_errors", 120.0, "ours; NVSentinel 10 per second"),
        _limit("local_link_integrity_errors", 0.0, "NVSentinel: any increase"),
        _limit("excessive_buffer_overrun_errors", 0.0, "NVSentinel: any increase"),
        _limit("port_xmit_discards", 36000.0, "ours: 10 per second; NVSentinel 100 per second"),
        registry.Threshold(
            "ignore",
            [],
            "",
            "HCAs or ports not read: restricted functions log an error at every read",
            "gpud issue 1164",
        ),
    ),
)
