"""Every InfiniBand or RoCE port that should be up is up, at its full rate."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import ib, procs


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The ports, the best rate of each in this boot (Gb/s by port name), and how long each has waited for its subnet manager."""

    ports: tuple[ib.IbPort, ...]
    known_up: dict[str, float]
    waiting_s: dict[str, float]


def read(node: nodeview.NodeView) -> Reading:
    before = {k: float(v) for k, v in node.memory.get("seen_up", {}).items()}
    try:
        found = ib.ports(node)
    except findings.Absent:
        if not node.limits["ports"] and not node.limits["count"] and not before:
            raise
        found = []
    virtual = {p.name for p in found if p.virtual} - set(node.limits["ports"])
    now = {p.name: p.rate_gbps or 0.0 for p in found if p.up and p.name not in virtual}
    # Ports that are joined into a bond leave as the bond's own comes.
    joined = any("bond" in p.hca and p.name not in before for p in found)
    away = set(before) - {p.name for p in found} if joined else set()
    before = {name: rate for name, rate in before.items() if name not in virtual | away}
    node.memory["seen_up"] = {k: max(before.get(k, 0.0), now.get(k, 0.0)) for k in before | now}
    waiting = procs.lasting(node, [p.name for p in found if p.waiting])
    return Reading(ports=tuple(found), known_up=before, waiting_s=waiting)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    wanted, ignored = set(limits["ports"]), set(limits["ignore"])
    ports = [
        p for p in reading.ports if not {p.hca, p.name} & ignored and (p.name in wanted or not p.virtual)
    ]
    named = {p.name for p in ports}
    # Without a list of ports, those that were up in this boot are the ones that must be.
    must = wanted or {name for name in reading.known_up if not {name, name.partition(":")[0]} & ignored}
    parts = findings.too_few(sum(p.up or p.waiting for p in ports), limits["count"], "ports are up")
    parts += [
        findings.fail(f"{name} is missing", device=name.partition(":")[0]) for name in sorted(must - named)
    ]
    parts += [_port(p, reading, limits) for p in ports]
    up = sum(p.up for p in ports)
    return findings.merge(
        parts, healthy=f"{up} of {len(ports)} ports up" if ports else "no RDMA port to judge"
    )


def _port(port: ib.IbPort, reading: Reading, limits: registry.Limits) -> findings.Finding:
    if port.state is None:
        return findings.unseen(f"{port.name}: its state cannot be read", device=port.hca)
    if port.waiting:
        lasted_s = reading.waiting_s.get(port.name, 0.0)
        make = findings.fail if lasted_s >= limits["waiting_fail_s"] else findings.warn
        text = f"{port.name} has its link and waits for the subnet manager (state {port.state})"
        facts = {"measured": round(lasted_s), "threshold": limits["waiting_fail_s"], "unit": "s"}
        return make(text, device=port.hca, severity=records.Severity.LOW, **facts)
    return _rate(port, reading, limits) if port.up else _down(port, reading, limits)


def _down(port: ib.IbPort, reading: Reading, limits: registry.Limits) -> findings.Finding:
    where = f"state {port.state}, physical state {port.phys_state}"
    if port.name in limits["ports"]:
        return findings.fail(f"{port.name} is down ({where})", device=port.hca)
    if limits["ports"] or (limits["count"] is not None and port.name not in reading.known_up):
        return findings.ok(f"{port.name} is not in use", device=port.hca)
    if port.phys_state == ib.DISABLED:  # somebody switched it off
        return (findings.warn if port.name in reading.known_up else findings.ok)(
            f"{port.name} is disabled", device=port.hca
        )
    if port.name in reading.known_up:
        return findings.fail(f"{port.name} was up in this boot and is down ({where})", device=port.hca)
    text = f"{port.name} is down ({where}) and the site file does not say whether it should be up"
    return findings.warn(text, device=port.hca)


def _rate(port: ib.IbPort, reading: Reading, limits: registry.Limits) -> findings.Finding:
    rate = limits["rate_gbps"] if limits["rate_gbps"] is not None else reading.known_up.get(port.name)
    if rate and port.rate_known and port.rate_gbps is not None and port.rate_gbps < rate:
        text, low = f"{port.name} runs at {port.rate_gbps:g} of {rate:g} Gb/s", records.Severity.LOW
        return findings.fail(
            text, device=port.hca, severity=low, measured=port.rate_gbps, threshold=rate, unit="gbps"
        )
    return findings.ok(f"{port.name} is up", device=port.hca)


CHECK = registry.Check(
    proves="All RDMA ports that should carry traffic are active, physically up and at full rate.",
    component="ib",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="fabric",
    hard=True,
    fails="a port of the site file is missing or down, fewer ports are up than configured, a port that was up in this "
    "boot is down or gone (high); a live port is slower than configured or than before, or has waited for the subnet "
    "manager for waiting_fail_s (low)",
    warns="a port is down and nobody said whether it should be up, was switched off, or waits for the subnet manager",
    needs="an RDMA device in /sys/class/infiniband",
    next_step="Look at the cable and the switch port (ibdiagnet, mlxlink); if many nodes lost a port at once, it is the switch.",
    read=read,
    judge=judge,
    learn=lambda reading: {
        "ports": [p.name for p in reading.ports if p.up and not p.virtual],
        "rate_gbps": min((p.rate_gbps for p in reading.ports if p.rate_known), default=None),
    },
    thresholds=(
        registry.Threshold(
            "ports", [], "", "ports that must be up, as mlx5_0:1", "site (genconf); GCM manifest"
        ),
        registry.Threshold(
            "count",
            None,
            "count",
            "number of ports that must be up",
            "gpud: 8 on H100/H200/B200, 1 on A100",
            unset=int,
        ),
        registry.Threshold(
            "rate_gbps",
            None,
            "gbps",
            "lowest rate of a live port; unset = the best it had in this boot",
            "gpud: 200 on A100, 400 on H100/H200/B200",
        ),
        registry.Threshold(
            "waiting_fail_s",
            240.0,
            "s",
            "how long a port with a link may wait in INIT or ARMED",
            "ours: two sweeps; GCM warns on INIT",
        ),
        registry.Threshold("ignore", [], "", "HCAs or ports never judged", "site"),
    ),
)
