"""Nodes as network namespaces on one bridge, each with a link that can be made slower or drop packets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

WORSE_LINKS = pytest.mark.parametrize(
    ("times", "waits"),
    [
        (1.0, ("latency", "2s")),
        (1.1, ("latency", "2s")),
        (1.2, ("latency", "2s")),
        (2.0, ("latency", "2s")),
        (1.0, ("limit", "20kb")),  # a quarter of the packets is dropped, and sent again by TCP
    ],
    ids=["healthy", "1.1 times", "1.2 times", "twice", "drops"],
)
"""How many times as slow one node's link is, and how much may wait for it."""


class Links:
    """The namespaces of the nodes and the bridge between them."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self._prefix = f"pc{os.getpid()}-"
        # Another run's bridge may stand beside this one.
        self._subnet = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"

    def name(self, node: str) -> str:
        """The namespace of a node."""
        return f"{self._prefix}{node}"

    def make(self) -> None:
        """One namespace per node, each with a link to the bridge."""
        hub = self.name("hub")
        run("ip", "netns", "add", hub)
        run("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", hub, "link", "set", "br0", "up")
        for number, node in enumerate(self.nodes, 1):
            own = self.name(node)
            run("ip", "netns", "add", own)
            run("ip", "-n", hub, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", own)
            run("ip", "-n", hub, "link", "set", node, "master", "br0", "up")
            run("ip", "-n", own, "addr", "add", f"{self._subnet}.{number}/24", "dev", "eth0")
            run("ip", "-n", own, "link", "set", "eth0", "up")

    def address(self, node: str) -> str:
        """Its address on the bridge."""
        return f"{self._subnet}.{self.nodes.index(node) + 1}"

    def join(self) -> str:
        """Puts this machine's own namespace on the bridge; its address there."""
        here = f"{self._prefix}own"
        peer = ("type", "veth", "peer", "name", here, "netns", "1")
        run("ip", "-n", self.name("hub"), "link", "add", "own", *peer)
        run("ip", "-n", self.name("hub"), "link", "set", "own", "master", "br0", "up")
        run("ip", "addr", "add", f"{self._subnet}.254/24", "dev", here)
        run("ip", "link", "set", here, "up")
        return f"{self._subnet}.254"

    def shape(self, node: str, rate_mbit: float, waits: Sequence[str] = ("latency", "2s")) -> None:
        """Both directions of a node's link at a rate; `waits` is how much may wait for it, what is more is dropped."""
        for space, device in ((self.name(node), "eth0"), (self.name("hub"), node)):
            rate = ["rate", f"{rate_mbit * 1000:.0f}kbit", "burst", "16kb", *waits]
            run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", *rate)

    def end(self) -> None:
        """Removes them."""
        for node in (*self.nodes, "hub"):
            subprocess.run(["ip", "netns", "del", self.name(node)], check=False, capture_output=True)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
