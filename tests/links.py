"""Nodes as network namespaces on one bridge, each with a link that can be made slower, drop packets or hold them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a link is like beside the others."""

    times: float = 1.0
    """How many times as slow."""
    waits: tuple[str, str] = ("latency", "2s")
    """How much may wait for it; what is more is dropped."""
    delay_s: float = 0.0
    """How long every packet is held."""

    @property
    def is_worse(self) -> bool:
        return self != HEALTHY


HEALTHY = Kind()
WORSE_LINKS = pytest.mark.parametrize(
    "kind",
    [
        HEALTHY,
        Kind(times=1.1),
        Kind(times=1.2),
        Kind(times=2.0),
        Kind(waits=("limit", "20kb")),  # a quarter of the packets is dropped, and sent again by TCP
        Kind(delay_s=0.005),
    ],
    ids=["healthy", "1.1 times", "1.2 times", "twice", "drops", "delays"],
)
"""What one node's link is like; the others' are healthy."""
_LATE = Path(__file__).with_name("late_link.py")


class Links:
    """The namespaces of the nodes and the bridge between them."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self._prefix = f"pc{os.getpid()}-"
        self._late: dict[str, subprocess.Popen[str]] = {}
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

    def shape(self, node: str, rate_mbit: float, kind: Kind = HEALTHY) -> None:
        """Both directions of a node's link at a rate, and what `kind` makes of it."""
        for space, device in ((self.name(node), "eth0"), (self.name("hub"), node)):
            rate = ["rate", f"{rate_mbit / kind.times * 1000:.0f}kbit", "burst", "16kb", *kind.waits]
            run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", *rate)
        self._hold(node, kind.delay_s)

    def _hold(self, node: str, seconds: float) -> None:
        """Holds every packet of a node's link that long, both ways: its end at the hub is bridged to the others by a program. 0 ends it."""
        hub, inner, outer = self.name("hub"), f"{node}-in", f"{node}-out"
        if node in self._late:
            run("ip", "-n", hub, "link", "set", node, "master", "br0")
            run("ip", "-n", hub, "link", "del", f"{node}-br")
            ended(self._late.pop(node))
        if not seconds:
            return
        carry = [sys.executable, str(_LATE), inner, outer, str(seconds)]
        made = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{hub}", *carry],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._late[node] = made
        assert made.stdin is not None
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n", "no tap devices"
        run("ip", "-n", hub, "link", "add", f"{node}-br", "type", "bridge")
        run("ip", "-n", hub, "link", "set", f"{node}-br", "up")
        for device, bridge in ((inner, f"{node}-br"), (outer, "br0"), (node, f"{node}-br")):
            run("ip", "-n", hub, "link", "set", device, "master", bridge, "up")
        made.stdin.write("go\n")
        made.stdin.flush()

    def end(self) -> None:
        """Removes them."""
        while self._late:
            ended(self._late.popitem()[1])
        for node in (*self.nodes, "hub"):
            subprocess.run(["ip", "netns", "del", self.name(node)], check=False, capture_output=True)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def ended(program: subprocess.Popen[str]) -> None:
    with program:
        program.terminate()
