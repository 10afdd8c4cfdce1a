"""Every InfiniBand or RoCE port that should be up is up, at its full rate."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, ib, nodeview, registry


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The ports, and the best each of them was seen at in this boot (Gb/s by port name)."""

    ports: tuple[ib.Port, ...]
    seen_up: dict[str, float]


def read(node: nodeview.NodeView) -> Reading:
    try:
        found = ib.ports(node)
    except findings.Absent:
        if not node.limits["ports"] and not node.limits["count"]:
            raise
        found = []
    before = {k: float(v) for k, v in node.memory.get("seen_up", {}).items()}
    now = {p.name: p.rate_gbps or 0.0 for p in found if p.up}
    node.memory["seen_up"] = {k: max(before.get(k, 0.0), now.get(k, 0.0)) for k in before | now}
    return Reading(ports=tuple(found), seen_up=before)


def judge(seen: Reading, limits: registry.Limits) -> findings.Finding:
    wanted: list[str] = limits["ports"]
    ignored = set(limits["ignore"])
    ports = [p for p in seen.ports if not {p.hca, p.name} & ignored and (p.name in wanted or not p.virtual)]
    named = {p.name for p in ports}
    parts = [
        findings.fail(f"{name} is missing", device=name.partition(":")[0])
        for name in wanted
        if name not in named
    ]
    # Without a list of ports, the number of ports that are up is what must be right.
    by_count = not wanted and limits["count"] is not None
    parts += [_port(p, p.name in wanted, by_count, seen.seen_up.get(p.name), limits) for p in ports]
    up = sum(p.up for p in ports)
    if limits["count"] is not None and up < limits["count"]:
        text = f"{up} of {limits['count']} ports are up"
        parts.insert(
            0, findings.fail(text, measured=float(up), threshold=float(limits["count"]), unit="count")
        )
    return findings.merge(
        parts, healthy=f"{up} of {len(ports)} ports up" if ports else "no RDMA port to judge"
    )


def _port(
    port: ib.Port, wanted: bool, by_count: bool, before: float | None, limits: registry.Limits
) -> findings.Finding:
    device = port.hca
    if port.state is None:
        return findings.unseen(f"{port.name}: its state cannot be read", device=device)
    if not port.up:
        where = f"state {port.state}, physical state {port.phys_state}"
        if wanted or before is not None:
            return findings.fail(f"{port.name} is down ({where})", device=device)
        if by_count or port.phys_state == ib.DISABLED:
            return findings.ok(f"{port.name} is not in use", device=device)
        return findings.warn(
            f"{port.name} is down ({where}) and the site file does not say whether it should be up",
            device=device,
        )
    rate = limits["rate_gbps"] if limits["rate_gbps"] is not None else before
    if rate and port.rate_known and port.rate_gbps is not None and port.rate_gbps < rate:
        text = f"{port.name} runs at {port.rate_gbps:g} of {rate:g} Gb/s"
        low = records.Severity.LOW
        return findings.fail(
            text, device=device, severity=low, measured=port.rate_gbps, threshold=rate, unit="gbps"
        )
    return findings.ok(f"{port.name} is up", device=device)


CHECK = registry.Check(
    name="ib_link",
    proves="All RDMA ports that should carry traffic are active, physically up and at full rate.",
    component="ib",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="fabric",
    can_hang=True,
    hard=True,
    fails="a port of the site file is missing or down, fewer ports are up than configured, a port that was up in this "
    "boot is down (high); a live port is slower than configured or than before (low)",
    warns="a port is down and nobody said whether it should be up",
    needs="an RDMA device in /sys/class/infiniband",
    next_step="Look at the cable and the switch port (ibdiagnet, mlxlink); if many nodes lost a port at once, it is the switch.",
    read=read,
    judge=judge,
    learn=lambda seen: {
        "ports": [p.name for p in seen.ports if p.up and not p.virtual],
        "rate_gbps": min((p.rate_gbps for p in seen.ports if p.rate_known), default=None),
    },
    thresholds=(
        registry.Threshold(
            key="ports",
            default=[],
            kind=list,
            unit="",
            meaning="ports that must be up, as mlx5_0:1",
            source="site (genconf); GCM manifest",
        ),
        registry.Threshold(
            key="count",
            default=None,
            kind=int,
            unit="count",
            meaning="number of ports that must be up",
            source="gpud: 8 on H100/H200/B200, 1 on A100",
        ),
        registry.Threshold(
            key="rate_gbps",
            default=None,
            unit="gbps",
            meaning="lowest rate of a live port; unset = the best it had in this boot",
            source="gpud: 200 on A100, 400 on H100/H200/B200",
        ),
        registry.Threshold(
            key="ignore", default=[], kind=list, unit="", meaning="HCAs or ports never judged", source="site"
        ),
    ),
)
