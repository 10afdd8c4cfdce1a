"""Ethernet interfaces."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

ROUTES = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "{}\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0"
)


def interface(node: Any, name: str = "eno1", **files: str) -> None:
    up = {"type": "1", "operstate": "up", "carrier": "1", "speed": "25000", "mtu": "1500", "duplex": "full"}
    for file, text in (up | files).items():
        node.put(f"sys/class/net/{name}/{file}", text)
    node.put(f"sys/class/net/{name}/device/vendor", "0x8086")


def test_default_route(node: Any) -> None:
    """Without a site file the interface of the default route is judged, others are not."""
    interface(node)
    interface(node, "eno2", operstate="down", carrier="0")
    node.put("proc/net/route", ROUTES.format("eno1"))
    assert node.check("eth_link").outcome is Outcome.OK
    node.put("proc/net/route", ROUTES.format("eno2"))
    finding = node.check("eth_link")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "eno2")


def test_a_route_that_stands_by(node: Any) -> None:
    """A second default route of a higher metric is not what the node depends on."""
    interface(node)
    interface(node, "eno2", operstate="down", carrier="0")
    other = ROUTES.format("eno2").splitlines()[1].split("\t")
    other[6] = "900"
    node.put("proc/net/route", ROUTES.format("eno1") + "\n" + "\t".join(other))
    assert node.check("eth_link").outcome is Outcome.OK
    node.put("proc/net/route", ROUTES.format("eno2") + "\n" + ROUTES.format("eno1").splitlines()[1])
    assert node.check("eth_link").device == "eno2"


def test_the_sites_interfaces(node: Any) -> None:
    """A missing or slow interface of the site file fails, another MTU warns."""
    interface(node)
    assert node.check("eth_link", interfaces=["eno1=25000"]).outcome is Outcome.OK
    finding = node.check("eth_link", interfaces=["eno1=100000"])
    assert (finding.outcome, finding.measured, finding.threshold) == (Outcome.FAIL, 25000, 100000)
    assert node.check("eth_link", interfaces=["eno1", "eno9"]).device == "eno9"
    assert node.check("eth_link", interfaces=["eno1"], mtu=9000).outcome is Outcome.WARN


def test_bond(node: Any) -> None:
    """A bond that lost one member still carries traffic: a warning that names it."""
    interface(node, "bond0", speed="50000")
    node.put(
        "proc/net/bonding/bond0",
        "MII Status: up\n\nSlave Interface: eno1\nMII Status: up\n\nSlave Interface: eno2\nMII Status: down\n",
    )
    finding = node.check("eth_link", interfaces=["bond0"])
    assert finding.outcome is Outcome.WARN
    assert "eno2" in finding.message


def test_half_duplex(node: Any) -> None:
    """Half duplex warns."""
    interface(node, duplex="half")
    assert node.check("eth_link", interfaces=["eno1"]).outcome is Outcome.WARN


def test_nothing_named(node: Any) -> None:
    """No interface at all, or none that anybody depends on, is nothing to judge."""
    assert node.check("eth_link").outcome is Outcome.ABSENT
    interface(node)
    assert node.check("eth_link").outcome is Outcome.ABSENT
