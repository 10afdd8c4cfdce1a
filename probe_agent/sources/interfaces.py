"""The node's own network interfaces: which are there, and which have a link.

The kernel writes one log for every network namespace, and any user can make a namespace with bonds of any name in it.
A line about a bond or a link without a PCI address therefore counts only if the agent's namespace shows the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from probing_cluster.evidence.kernel import ethernet, grammar
from probing_cluster.probe_agent.faults.conditions import Judgement
from probing_cluster.probe_agent.sources import polled, sysfs

NET = "/sys/class/net"
_LINKED = frozenset({"up", "unknown"})
"""`unknown` is the state of an interface whose driver reports none: nothing shows that it is down."""
_NAME = re.compile(r"[A-Za-z][\w.-]{0,14}", re.ASCII)
_CHECKED = frozenset({"bond_down", "bond_slave_down", "link_down"})


def confirmed(finding: grammar.KernelFinding, net: Path) -> grammar.KernelFinding:
    """The finding as the node's own interfaces bear it out; `net` is /sys/class/net of the initial namespace."""
    if finding.kind != "eth_link" or finding.code not in _CHECKED or finding.pci_bus_id is not None:
        return finding
    name = finding.device or ""
    if finding.code == "link_down" and _NAME.fullmatch(name) and (net / name / "device").exists():
        return finding  # a device's own line; it may be up again already
    if not _is_down(net, name, str(finding.detail.get("bond") or "") or None):
        return grammar.recoded(finding, ethernet.FACTS, "unconfirmed")
    return replace(finding, severity=grammar.HIGH) if finding.code == "bond_down" else finding


def _is_down(net: Path, name: str, bond: str | None) -> bool:
    """True if the node has this interface, as a port of `bond` if one is named, and it has no link."""
    if not _NAME.fullmatch(name) or _state(net / name) in (None, *_LINKED):
        return False
    if bond is None or bond == name:
        return True
    return _NAME.fullmatch(bond) is not None and (net / name / "master").resolve().name == bond


def _state(interface: Path) -> str | None:
    try:
        return (interface / "operstate").read_text("ascii", "replace").strip()
    except OSError:
        return None


async def read(reader: polled.NodeReader, _: Mapping[str, Any], __: polled.PollContext) -> Mapping[str, Any]:
    """The state of every interface."""
    return await reader.files((f"{NET}/*/operstate",))


def judge(raw: Mapping[str, Any], _: Mapping[str, Any], __: polled.PollContext) -> Judgement:
    """No condition: which links a node needs only its site knows. A link that is up ends what a line said of it."""
    names = [name for (name,) in sysfs.matching(raw, rf"{NET}/([^/]+)/operstate")]
    up = frozenset(n for n in names if sysfs.text(raw, f"{NET}/{n}/operstate") in _LINKED)
    return Judgement(healthy=up, there=frozenset(names) if names else None, state="ok" if names else "absent")


SOURCE = polled.Polled(
    name="interfaces",
    source="sysfs",
    read=read,
    judge=judge,
    reads="`/sys/class/net`",
    stands="– · – · –",
)
