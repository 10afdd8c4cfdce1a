"""Ethernet interfaces that carry this node's traffic are up at their speed."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import findings, nodeview, registry

NET = "/sys/class/net"
_ETHERNET = 1
"""ARPHRD_ETHER."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One Ethernet interface."""

    name: str
    operstate: str | None
    carrier: bool | None
    speed_mbps: int | None
    mtu: int | None
    full_duplex: bool | None
    members_down: tuple[str, ...] = ()
    """Members of a bond that have no link."""
    routed: bool = False
    """Whether the default route uses it."""


def parse_routes(text: str) -> set[str]:
    """Interfaces of the default routes that are taken, in a /proc/net/route text: one of a higher metric stands by."""
    rows = [line.split() for line in text.splitlines()[1:]]
    routes = [r for r in rows if len(r) > 7 and r[1] == "00000000" and r[7] == "00000000"]
    metrics = {id(r): int(r[6]) if digits.is_number(r[6]) else 0 for r in routes}
    return {r[0] for r in routes if metrics[id(r)] == min(metrics.values())}


def parse_bond(text: str) -> tuple[str, ...]:
    """Members without link in a /proc/net/bonding/<bond> text."""
    down: list[str] = []
    member = None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "Slave Interface":
            member = value.strip()
        elif key == "MII Status" and member is not None and value.strip() != "up":
            down.append(member)
    return tuple(down)


def read(node: nodeview.NodeView) -> list[Interface]:
    routed = parse_routes(node.text("/proc/net/route") or "")
    found = [
        _interface(node, name, name in routed)
        for name in node.names(NET)
        if node.number(f"{NET}/{name}/type") == _ETHERNET
    ]
    wanted = set(node.limits["interfaces"])
    physical = [i for i in found if i.name in wanted | routed or node.exists(f"{NET}/{i.name}/device")]
    if not physical and not wanted:
        raise findings.Absent("no Ethernet interface")
    return physical


def _interface(node: nodeview.NodeView, name: str, routed: bool) -> Interface:
    base = f"{NET}/{name}"
    carrier, speed = node.number(f"{base}/carrier"), node.number(f"{base}/speed")
    duplex = node.text(f"{base}/duplex")
    return Interface(
        name=name,
        operstate=node.text(f"{base}/operstate"),
        carrier=None if carrier is None else bool(carrier),
        speed_mbps=speed if speed is not None and 0 < speed < 2**31 else None,
        mtu=node.number(f"{base}/mtu"),
        full_duplex=None if duplex in (None, "unknown") else duplex == "full",
        members_down=parse_bond(node.text(f"/proc/net/bonding/{name}") or ""),
        routed=routed,
    )


def judge(interfaces: list[Interface], limits: registry.Limits) -> findings.Finding:
    wanted = {name: number for name, _, number in (entry.partition("=") for entry in limits["interfaces"])}
    there = {i.name for i in interfaces}
    parts = [findings.fail(f"{name} is missing", device=name) for name in wanted if name not in there]
    judged = [i for i in interfaces if i.name in wanted or (not wanted and i.routed)]
    parts += [_one(i, nodeview.to_int(wanted.get(i.name) or None), limits) for i in judged]
    if not parts:
        return findings.absent("no Ethernet interface is named by the site file or carries the default route")
    return findings.merge(parts, healthy=f"{', '.join(i.name for i in judged)} up")


def _one(one: Interface, speed_mbps: int | None, limits: registry.Limits) -> findings.Finding:
    if one.operstate not in ("up", "unknown") or one.carrier is False:
        return findings.fail(f"{one.name} is {one.operstate or 'in an unknown state'}", device=one.name)
    if one.members_down:
        return findings.warn(f"{one.name} has lost {', '.join(one.members_down)}", device=one.name)
    if speed_mbps and one.speed_mbps is not None and one.speed_mbps < speed_mbps:
        text = f"{one.name} runs at {one.speed_mbps} of {speed_mbps} Mb/s"
        facts = findings.amount(one.speed_mbps, speed_mbps, "mbps")
        return findings.fail(text, device=one.name, **facts)
    if one.full_duplex is False:
        return findings.warn(f"{one.name} runs half duplex", device=one.name)
    if limits["mtu"] is not None and one.mtu is not None and one.mtu != limits["mtu"]:
        facts = findings.amount(one.mtu, limits["mtu"], "bytes")
        return findings.warn(f"{one.name} has MTU {one.mtu}", device=one.name, **facts)
    return findings.ok(one.name, device=one.name)


CHECK = registry.Check(
    proves="The Ethernet interfaces the node depends on have a link, at the right speed.",
    component="eth",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    fails="an interface of the site file (by default: of the default route) is missing, down or too slow",
    warns="a bond has lost a member, half duplex, or an MTU other than the site's",
    needs="an Ethernet interface named by the site file or carrying the default route",
    next_step="ethtool shows the negotiated link; check cable and switch port.",
    read=read,
    judge=judge,
    learn=lambda interfaces: {
        "interfaces": [
            f"{i.name}={i.speed_mbps}" if i.speed_mbps else i.name
            for i in interfaces
            if i.operstate == "up" and i.carrier
        ]
    },
    thresholds=(
        registry.Threshold(
            "interfaces",
            [],
            "",
            "interfaces that must be up, with their speed in Mb/s: eno1 or eno1=25000",
            "site (genconf); NHC check_hw_eth, GCM check-ethlink",
        ),
        registry.Threshold(
            "mtu", None, "bytes", "MTU they should have; unset = any", "site; GCM check-ethlink", unset=int
        ),
    ),
)
